package owner

import (
	"sync"
	"time"
)

const (
	// beat is how often a process renews its claim that it lives.
	beat = time.Minute
	// claimLength is how long each claim lasts: a few may be late.
	claimLength = 10 * time.Minute
)

// Those who have this process claim that it lives, by the folder of the claims.
var attending struct {
	mu  sync.Mutex
	all map[string]*attendance
}

type attendance struct {
	count int
	stop  chan struct{}
	done  chan struct{}
}

// Attend has this process claim in dir that it lives, until each who has called this has called leave, once. The error
// is that of the first claim; those that come later do without, for a claim only ever adds to what else is known.
func Attend(dir string) (leave func() error, err error) {
	self, err := Self()
	if err != nil {
		return nil, err
	}
	attending.mu.Lock()
	defer attending.mu.Unlock()
	a := attending.all[dir]
	if a == nil {
		if err := Claim(dir, self, time.Now().Add(claimLength)); err != nil {
			return nil, err
		}
		a = &attendance{stop: make(chan struct{}), done: make(chan struct{})}
		go a.run(dir, self)
		if attending.all == nil {
			attending.all = map[string]*attendance{}
		}
		attending.all[dir] = a
	}
	a.count++
	return func() error {
		attending.mu.Lock()
		defer attending.mu.Unlock()
		if a.count--; a.count > 0 {
			return nil
		}
		delete(attending.all, dir)
		close(a.stop)
		<-a.done
		return Unclaim(dir, self)
	}, nil
}

// run renews the claim until it is stopped.
func (a *attendance) run(dir string, self ID) {
	defer close(a.done)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-a.stop:
			return
		case now := <-ticker.C:
			_ = Claim(dir, self, now.Add(claimLength)) // the next one tries again
		}
	}
}
