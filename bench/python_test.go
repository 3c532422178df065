package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestPromise_more(t *testing.T) {
	p := promise{row: "exec", contender: "a", to: "b", more: 0.5}
	other := []time.Duration{time.Millisecond}
	for own, kept := range map[time.Duration]string{
		1500 * time.Microsecond: "0.50 ms more, n 1: KEPT",
		1510 * time.Microsecond: "0.51 ms more, n 1: NOT KEPT",
		900 * time.Microsecond:  "-0.10 ms more, n 1: KEPT",
	} {
		samples := map[key][]time.Duration{{"exec", "a"}: {own}, {"exec", "b"}: other}
		r := report{contenders: []string{"b"}, samples: samples}
		want := "promise: exec by the a: at most 0.5 ms more than the b's: " + kept
		if got := r.verdict(p); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestMemory(t *testing.T) {
	const library = 10 << 20
	for server, kept := range map[int64]bool{
		library - 1:                          true,
		library + heldSandboxes*moreEach:     true,
		library + heldSandboxes*(moreEach+1): false,
	} {
		m := memory{library: library, server: server}
		if m.kept() != kept || strings.HasSuffix(m.String(), ": NOT KEPT") == kept {
			t.Errorf("got %v", m)
		}
		if got := (report{contenders: []string{byFumehood}, memory: &m}).countBroken() == 0; got != kept {
			t.Errorf("%v: no promise is broken: %v", m, got)
		}
	}
}

func TestChild(t *testing.T) {
	const script = `echo "{\"size\": $SIZE}"; cat; echo broken >&2; exit 3`
	c, err := startChild(t.Context(), []string{"SIZE=7"}, "sh", "-c", script)
	if err != nil {
		t.Fatal(err)
	}
	var answer struct{ Size int64 }
	if err := c.ask(t.Context(), nil, &answer); err != nil || answer.Size != 7 {
		t.Fatalf("got %+v, %v", answer, err)
	}
	if err := c.ask(t.Context(), map[string]int{"size": 8}, &answer); err != nil || answer.Size != 8 {
		t.Errorf("got %+v, %v", answer, err)
	}
	if size, err := c.resident(); size <= 0 && !errors.Is(err, errNotMeasured) {
		t.Errorf("resident: %d, %v", size, err)
	}
	if err := c.close(t.Context()); err == nil || !strings.HasSuffix(err.Error(), "exit status 3: broken") {
		t.Errorf("close: %v", err)
	}
}
