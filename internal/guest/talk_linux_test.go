package guest

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestBoundTo(t *testing.T) {
	const v4 = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 1234: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 111 2 0000000000000000 0
 1235: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 112 2 0000000000000000 0
 1236: 0200C90A:0036 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 113 2 0000000000000000 0
 1237: 0100007F:0037 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 114 2 0000000000000000 0
`
	const v6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue
  53: 00000000000000000000000000000000:0035 00000000000000000000000000000000:0000 07 00000000:00000000
  54: 00000000000000000000000001000000:0038 00000000000000000000000000000000:0000 07 00000000:00000000
  55: 0000000000000000FFFF00000100007F:0039 00000000000000000000000000000000:0000 07 00000000:00000000
`
	for _, c := range []struct {
		table string
		port  uint16
		want  []string
	}{
		{v4, 53, []string{"0.0.0.0", "127.0.0.1"}},
		{v4, 54, []string{"10.201.0.2"}},
		{v4, 55, nil}, // a connected socket receives datagrams from its peer only
		{v4, 56, nil},
		{v6, 53, []string{"::"}},
		{v6, 56, []string{"::1"}},
		{v6, 57, []string{"127.0.0.1"}},
		{"", 53, nil},
		{"a\nb c\nd :0035 :0000\ne zz:0035 00:0000\nf 000000:0035 00:0000\n", 53, nil},
	} {
		got, err := boundAddrs(strings.NewReader(c.table), c.port)
		var texts []string
		for _, a := range got {
			texts = append(texts, a.String())
		}
		if err != nil || !slices.Equal(texts, c.want) {
			t.Errorf("port %d: got %v, %v, want %v", c.port, got, err, c.want)
		}
	}
}

func TestTakesAt(t *testing.T) {
	for _, c := range []struct {
		bound, addr string
		want        bool
	}{
		{"0.0.0.0", "10.0.0.2", true},
		{"0.0.0.0", "::1", false},
		{"::", "10.0.0.2", true},
		{"::", "fd00::2", true},
		{"10.0.0.2", "10.0.0.2", true},
		{"127.0.0.1", "10.0.0.2", false},
	} {
		if got := takesAt(netip.MustParseAddr(c.bound), netip.MustParseAddr(c.addr)); got != c.want {
			t.Errorf("bound to %s, %s: got %t", c.bound, c.addr, got)
		}
	}
}
