package provider

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fumehood/fumehood"
)

func TestFeed_noListener(t *testing.T) {
	f := newFeed(false)
	const chunk = feedSize / 8
	for i := range 20 {
		f.put(fumehood.Stdout, bytes.Repeat([]byte{byte(i)}, chunk))
	}
	f.close()
	if !f.attach() {
		t.Fatal("attach failed without a listener")
	}
	ev, ok := f.take()
	if !ok || ev.Skipped != 12*chunk || ev.Data[0] != 12 {
		t.Fatalf("the first event skips %d and begins with %d", ev.Skipped, ev.Data[0])
	}
	for i := byte(13); i < 20; i++ {
		if ev, ok = f.take(); !ok || ev.Skipped != 0 || ev.Data[0] != i {
			t.Fatalf("chunk %d: %v, skipped %d", i, ok, ev.Skipped)
		}
	}
	if _, ok = f.take(); ok {
		t.Error("an event after the last")
	}
}

func TestFeed_skipped(t *testing.T) {
	f := newFeed(false)
	f.put(fumehood.Stderr, make([]byte, 100))
	f.put(fumehood.Stdout, make([]byte, 10))
	f.put(fumehood.Stdout, make([]byte, feedSize))
	f.put(fumehood.Stderr, []byte("end"))
	f.close()
	got := map[fumehood.Stream]int64{}
	for ev, ok := f.take(); ok; ev, ok = f.take() {
		got[ev.Stream] += ev.Skipped + int64(len(ev.Data))
	}
	if got[fumehood.Stderr] != 103 || got[fumehood.Stdout] != feedSize+10 {
		t.Errorf("accounted for %v", got)
	}
}

func TestFeed_smallChunks(t *testing.T) {
	f := newFeed(false)
	const each = feedSize / 4
	for i := range each {
		f.put(fumehood.Stdout, []byte{byte(i)})
		f.put(fumehood.Stderr, []byte{byte(i)})
	}
	f.close()
	if n := len(f.chunks); n > feedChunks {
		t.Errorf("%d chunks are held", n)
	}
	got := map[fumehood.Stream]int64{}
	for ev, ok := f.take(); ok; ev, ok = f.take() {
		got[ev.Stream] += ev.Skipped + int64(len(ev.Data))
	}
	if got[fumehood.Stdout] != each || got[fumehood.Stderr] != each {
		t.Errorf("accounted for %v", got)
	}
}

func TestFeed_attach(t *testing.T) {
	f := newFeed(false)
	if !f.attach() || f.attach() {
		t.Error("not exactly one of two attach calls succeeded")
	}
	f.detach()
	if !f.attach() {
		t.Error("attach failed after detach")
	}
}

func TestFeed_copiesData(t *testing.T) {
	f := newFeed(false)
	buf := []byte("first")
	f.put(fumehood.Stdout, buf)
	copy(buf, "XXXXX")
	if ev, _ := f.take(); string(ev.Data) != "first" {
		t.Errorf("got %q", ev.Data)
	}
}

func TestFeed_putBlocks(t *testing.T) {
	for name, free := range map[string]func(*feed){
		"until it takes":          func(f *feed) { f.take() },
		"until it leaves":         func(f *feed) { f.detach() },
		"until the kill":          func(f *feed) { f.release() },
		"until it takes one more": func(f *feed) { f.take(); f.take() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFeed(false)
				f.attach()
				f.put(fumehood.Stdout, []byte(strings.Repeat("x", feedSize)))
				done := false
				go func() {
					f.put(fumehood.Stdout, []byte("y"))
					done = true
				}()
				synctest.Wait()
				if done {
					t.Fatal("put did not block")
				}
				free(f)
				synctest.Wait()
				if !done {
					t.Error("put still blocks")
				}
			})
		})
	}
}

func TestFeed_takeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(false)
		f.attach()
		var got []string
		over := false
		go func() {
			for ev, ok := f.take(); ok; ev, ok = f.take() {
				got = append(got, string(ev.Data))
			}
			over = true
		}()
		synctest.Wait()
		f.put(fumehood.Stdout, []byte("a"))
		synctest.Wait()
		if len(got) != 1 || over {
			t.Fatalf("got %q, over %v", got, over)
		}
		f.close()
		synctest.Wait()
		if !over {
			t.Error("close did not wake the listener")
		}
	})
}

// A listener that was announced misses nothing, and a kill does not wait for it.
func TestFeed_expected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFeed(true)
		go func() {
			for i := range 40 {
				f.put(fumehood.Stdout, bytes.Repeat([]byte{byte(i)}, feedSize/8))
			}
			f.close()
		}()
		synctest.Wait()
		f.attach()
		for i := range 20 {
			if ev, ok := f.take(); !ok || ev.Skipped != 0 || ev.Data[0] != byte(i) {
				t.Fatalf("chunk %d: %v, skipped %d", i, ok, ev.Skipped)
			}
		}
		f.detach()
		for ev, ok := f.take(); ok; ev, ok = f.take() { // nobody is expected any more: it is not blocked
			_ = ev
		}
	})
	f := newFeed(true)
	f.release()
	f.put(fumehood.Stdout, make([]byte, 2*feedSize))
	f.put(fumehood.Stdout, make([]byte, 2*feedSize))
}
