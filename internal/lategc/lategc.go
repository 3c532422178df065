// Package lategc delays the first garbage collection of a program that imports it until the heap has 32 MiB instead of
// 4. Most commands end before that. The packages of the program allocate 5 MiB when they are initialized, so that a
// collection would otherwise run in every start. Libraries must not import it: that is the program's decision. A value
// of GOGC that the program sets later by [debug.SetGCPercent] stays.
package lategc

import (
	"os"
	"runtime"
	"runtime/debug"
)

// percent is the value of GOGC until the first collection: Go collects at 4 MiB times GOGC/100 at the earliest.
const percent = 800

func init() {
	if os.Getenv("GOGC") == "" {
		delay()
	}
}

// delay sets GOGC to [percent] until the next collection. The channel is closed once the value from before is back.
func delay() <-chan struct{} {
	before := debug.SetGCPercent(percent)
	done := make(chan struct{})
	first := new([2]uintptr)
	runtime.AddCleanup(first, func(before int) {
		defer close(done)
		if set := debug.SetGCPercent(before); set != percent {
			debug.SetGCPercent(set)
		}
	}, before)
	return done
}
