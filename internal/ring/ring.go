// Package ring keeps the end of a stream. It imports the standard library only, for the root package and
// the guest use it.
package ring

import (
	"slices"
	"sync"
)

// Tail keeps the last bytes of what is written to it, and counts them all. Its methods may be called by
// many goroutines at once.
type Tail struct {
	mu    sync.Mutex
	limit int64
	buf   []byte // at most limit; a ring once it is full
	next  int    // where the ring's oldest byte is
	total int64
	more  chan struct{} // closed by the next write; nil where nobody waits for one
}

// NewTail keeps limit bytes.
func NewTail(limit int64) *Tail { return &Tail{limit: limit} }

// Write takes p. It never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	if n > 0 && t.more != nil {
		close(t.more)
		t.more = nil
	}
	t.total += int64(n)
	if int64(n) > t.limit {
		p = p[int64(n)-t.limit:]
	}
	if room := t.limit - int64(len(t.buf)); room > 0 {
		fits := min(room, int64(len(p)))
		t.grow(fits)
		t.buf = append(t.buf, p[:fits]...)
		p = p[fits:]
	}
	for len(p) > 0 {
		k := copy(t.buf[t.next:], p)
		p = p[k:]
		t.next = (t.next + k) % len(t.buf)
	}
	return n, nil
}

// grow makes room for n bytes more, of which the limit has room. Append grows a large slice by a quarter: what is
// kept would be copied four times on its way, into fresh pages each time.
func (t *Tail) grow(n int64) {
	if need := int64(len(t.buf)) + n; need > int64(cap(t.buf)) {
		t.buf = slices.Grow(t.buf, int(min(t.limit, max(need, 2*int64(cap(t.buf))))-int64(len(t.buf))))
	}
}

// Skip counts n bytes that are not there to be written, and drops what is kept: it came before them.
func (t *Tail) Skip(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.more != nil {
		close(t.more)
		t.more = nil
	}
	t.total += n
	t.buf, t.next = t.buf[:0], 0
}

// Bytes returns what is kept, and how many bytes there were in all. The caller may not write to it, and
// nothing may be written to the tail any more.
func (t *Tail) Bytes() (kept []byte, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != 0 { // put in order once, so that it is held once
		ordered := make([]byte, 0, len(t.buf))
		t.buf, t.next = append(append(ordered, t.buf[t.next:]...), t.buf[:t.next]...), 0
	}
	return t.buf, t.total
}

// From returns a copy of what is kept from offset on, at most as many bytes, and the offset at which that
// begins, which is a later one where the bytes before it are not kept any more. Where nothing is there
// yet, p is empty, and more is closed by the next write.
func (t *Tail) From(offset int64, most int) (p []byte, at int64, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := int64(len(t.buf))
	at = max(offset, t.total-kept)
	n := min(t.total-at, int64(most))
	if n <= 0 {
		if t.more == nil {
			t.more = make(chan struct{})
		}
		return nil, at, t.more
	}
	p = make([]byte, n)
	begin := (int64(t.next) + at - (t.total - kept)) % kept
	copied := copy(p, t.buf[begin:])
	copy(p[copied:], t.buf)
	return p, at, nil
}
