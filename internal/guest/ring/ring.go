// Package ring keeps the end of a stream. It imports only the standard library, because package provider and the guest
// use it.
package ring

import (
	"slices"
	"sync"
)

// Tail keeps the last bytes written to it, and counts all bytes. Its methods may be called concurrently.
type Tail struct {
	mu    sync.Mutex
	limit int64
	buf   []byte // at most limit; a ring once it is full
	next  int    // index of the ring's oldest byte
	total int64
	more  chan struct{} // closed by the next write; nil if nothing waits for one
}

// NewTail returns a Tail that keeps limit bytes.
func NewTail(limit int64) *Tail { return &Tail{limit: limit} }

// Write adds p. It never fails.
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

// grow makes room for n more bytes, within the limit. append would grow a large slice by only a quarter, which copies
// its content about four times in total, into new pages each time.
func (t *Tail) grow(n int64) {
	if need := int64(len(t.buf)) + n; need > int64(cap(t.buf)) {
		t.buf = slices.Grow(t.buf, int(min(t.limit, max(need, 2*int64(cap(t.buf))))-int64(len(t.buf))))
	}
}

// Skip counts n bytes whose content is not available. It drops the kept bytes, because they came before.
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

// Total returns the number of all bytes.
func (t *Tail) Total() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

// Bytes returns the kept bytes, and the number of all bytes. The caller must not modify kept, and must not write to
// the Tail any more.
func (t *Tail) Bytes() (kept []byte, total int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != 0 { // put in order once, to keep only one copy
		ordered := make([]byte, 0, len(t.buf))
		t.buf, t.next = append(append(ordered, t.buf[t.next:]...), t.buf[:t.next]...), 0
	}
	return t.buf, t.total
}

// From returns a copy of the kept bytes from offset on, at most most of them, and the offset of the first one. That
// offset is later than offset if earlier bytes are not kept any more. If there are no such bytes yet, p is empty, and
// more is closed by the next write.
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
