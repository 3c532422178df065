package provider

import (
	"slices"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

func TestEnviron(t *testing.T) {
	cmd := fumehood.Cmd{Env: map[string]string{"B": "2", "A": "1=1", "C": ""}}
	if got, want := Environ(&cmd), []string{"A=1=1", "B=2", "C="}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOutputCap(t *testing.T) {
	for in, want := range map[int64]int64{0: fumehood.DefaultOutputCap, fumehood.KeepNone: 0, 1: 1, 1 << 40: 1 << 40} {
		if got := OutputCap(&fumehood.Cmd{StdoutCap: in, StderrCap: 7}, fumehood.Stdout); got != want {
			t.Errorf("a cap of %d is %d bytes, want %d", in, got, want)
		}
		if got := OutputCap(&fumehood.Cmd{StdoutCap: 7, StderrCap: in}, fumehood.Stderr); got != want {
			t.Errorf("a cap of %d is %d bytes, want %d", in, got, want)
		}
	}
}

func TestKillAfter(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{0: fumehood.DefaultGrace, fumehood.NoGrace: 0, time.Minute: time.Minute} {
		if got := KillAfter(&fumehood.Cmd{Grace: in}); got != want {
			t.Errorf("a grace of %v is %v, want %v", in, got, want)
		}
	}
}
