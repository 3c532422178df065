package guest

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

func TestGuest_outlast(t *testing.T) {
	const visit = time.Hour
	for name, c := range map[string]struct {
		resident bool
		linger   time.Duration
		hosts    int // that leave after a visit
		want     time.Duration
	}{
		"nobody else":           {},
		"a moved connection":    {hosts: 1, want: visit},
		"lingers":               {resident: true, linger: time.Minute, want: time.Minute},
		"lingers after a visit": {resident: true, linger: time.Minute, hosts: 2, want: visit + time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := &guest{resident: c.resident, linger: c.linger, hosts: c.hosts}
				g.parted = sync.NewCond(&g.mu)
				for range c.hosts {
					time.AfterFunc(visit, g.part)
				}
				began := time.Now()
				g.outlast()
				if took := time.Since(began); took != c.want || !g.closing {
					t.Errorf("ended after %v, want %v; closing %v", took, c.want, g.closing)
				}
			})
		})
	}
}

// A guest may not notice the end of its first connection.
func TestGuest_serveHost_replaces(t *testing.T) {
	g := &guest{resident: true, linger: time.Minute}
	g.parted = sync.NewCond(&g.mu)
	pairs := func() (own, peer *wire.Socket) {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		if own, err = wire.NewSocket(pair[0]); err == nil {
			peer, err = wire.NewSocket(pair[1])
		}
		if err != nil {
			t.Fatal(err)
		}
		return own, peer
	}
	var hosts []*wire.Conn
	var serving sync.WaitGroup
	for i := range 2 {
		own, peer := pairs()
		host := wire.NewConn(own, wire.Host, nil)
		go func() { _ = host.Serve() }()
		hosts = append(hosts, host)
		if i == 0 {
			first := wire.NewConn(peer, wire.Guest, nil)
			g.latest = first
			serving.Go(func() { _ = first.Serve() })
		} else {
			serving.Go(func() { g.serveHost(peer) })
		}
		if !host.Ping(t.Context().Done()) {
			t.Fatal("the guest does not answer")
		}
	}
	<-hosts[0].Done()
	if !hosts[1].Ping(t.Context().Done()) {
		t.Error("the later connection has ended")
	}
	hosts[1].Close()
	serving.Wait()
	if g.hosts != 0 {
		t.Errorf("%d hosts are left", g.hosts)
	}
}
