package ring

import (
	"bytes"
	"fmt"
	"testing"
)

func TestTail_Write(t *testing.T) {
	for _, limit := range []int64{0, 1, 2, 3, 7, 8, 64, 1000} {
		for _, size := range []int{1, 2, 3, 5, 8, 13, 100} { // of each write
			t.Run(fmt.Sprintf("cap %d, writes of %d", limit, size), func(t *testing.T) {
				tl := NewTail(limit)
				var all []byte
				for i := range 30 {
					p := make([]byte, size)
					for j := range p {
						p[j] = byte(i*size + j)
					}
					all = append(all, p...)
					_, _ = tl.Write(p)
					want := all[max(0, int64(len(all))-limit):]
					got, total := tl.Bytes()
					if !bytes.Equal(got, want) || total != int64(len(all)) {
						t.Fatalf("after %d bytes: kept % x of %d, want % x", len(all), got, total, want)
					}
				}
			})
		}
	}
}

func TestTail_memory(t *testing.T) {
	tl := NewTail(1 << 60)
	_, _ = tl.Write([]byte("little"))
	if kept, _ := tl.Bytes(); cap(kept) > 1000 {
		t.Errorf("6 bytes took %d", cap(kept))
	}
}

func TestTail_From(t *testing.T) {
	for _, limit := range []int64{0, 1, 7, 64} {
		tl := NewTail(limit)
		var all []byte
		for i := range 40 {
			p := []byte(fmt.Sprintf("<%d>", i*i))
			all = append(all, p...)
			_, _ = tl.Write(p)
			total := int64(len(all))
			for offset := range total + 3 {
				for _, most := range []int{1, 5, 1000} {
					at := max(offset, total-limit, 0)
					want := all[min(at, total):min(at+int64(most), total)]
					got, begins, more := tl.From(offset, most)
					if !bytes.Equal(got, want) || begins != at || (more == nil) != (len(want) > 0) {
						t.Fatalf("cap %d, %d bytes, from %d at most %d: %q at %d, want %q at %d", limit, total, offset, most, got, begins, want, at)
					}
				}
			}
		}
	}
}

func TestTail_From_more(t *testing.T) {
	tl := NewTail(10)
	_, _, first := tl.From(0, 10)
	_, _, second := tl.From(0, 10)
	_, _ = tl.Write(nil)
	select {
	case <-first:
		t.Fatal("woken by nothing")
	default:
	}
	_, _ = tl.Write([]byte("x"))
	<-first
	<-second
	if p, at, _ := tl.From(0, 10); string(p) != "x" || at != 0 {
		t.Errorf("got %q at %d", p, at)
	}
}

func TestTail_Skip(t *testing.T) {
	for _, before := range []string{"", "ab", "abcdefghij"} {
		tl := NewTail(4)
		_, _ = tl.Write([]byte(before))
		n := int64(len(before))
		_, _, more := tl.From(n, 10)
		tl.Skip(100)
		<-more
		if p, at, _ := tl.From(n, 10); len(p) != 0 || at != n+100 {
			t.Errorf("after %q: %q at %d", before, p, at)
		}
		_, _ = tl.Write([]byte("uvwxyz"))
		if p, at, _ := tl.From(0, 10); string(p) != "wxyz" || at != n+102 {
			t.Errorf("after %q: %q at %d", before, p, at)
		}
	}
}
