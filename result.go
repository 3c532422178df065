package fumehood

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Outcome reports how a program ended. The zero value means that it is not known yet.
type Outcome string

const (
	// Exited: the program exited by itself; ExitCode is its own.
	Exited Outcome = "exited"
	// Signaled: the program was killed by a signal that was not sent because of one of our limits.
	Signaled Outcome = "signaled"
	// TimedOut: the program's Timeout expired on our clock, and we killed it.
	TimedOut Outcome = "timed-out"
	// CPUTimeExceeded: the program and its descendants used more processor time than Cmd.CPUTime. Reason has the time.
	CPUTimeExceeded Outcome = "cpu-time-exceeded"
	// OutOfMemory: the kernel's out-of-memory killer killed the program. Or it killed another process of the service while
	// the program ran alone there, and the program did not exit with 0: then Reason says how the program ended. A
	// service's own program counts as another one that runs. Its health checks do not.
	OutOfMemory Outcome = "out-of-memory"
	// Lost: the service died while the program ran; how the program ended is not known. It is never run again. Output
	// of the last 20 ms may be missing.
	Lost Outcome = "lost"
)

// Outcomes returns all outcomes of a command that has ended.
func Outcomes() []Outcome {
	return []Outcome{Exited, Signaled, TimedOut, CPUTimeExceeded, OutOfMemory, Lost}
}

// Result describes a command that ran.
type Result struct {
	Outcome  Outcome `json:"outcome"`
	ExitCode int     `json:"exit_code"`        // the program's own; 128+n for signal n; -1 if its timeout ended it, it exceeded Cmd.CPUTime, or lost
	Signal   int     `json:"signal,omitempty"` // Linux signal number if the outcome is Signaled, else 0

	Stdout Output `json:"stdout"`
	Stderr Output `json:"stderr"` // always empty with a TTY, which merges both streams

	Started  time.Time     `json:"started,omitzero"` // when the command was sent to the sandbox, on the host's clock
	Duration time.Duration `json:"-"`                // from Started until its end was known and its output drained

	// Reason describes why the outcome is Lost, as far as known. It is "killed by the caller" if the outcome is
	// Signaled because of Process.Kill or of a SIGKILL by Process.Signal, also by another process. It describes
	// out-of-memory kills of other processes than the program, see OutOfMemory. If other programs ran in the service
	// meanwhile, that does not change the outcome. It has the processor time used if the outcome is CPUTimeExceeded. It also names Rlimits.CPU if that limit killed the program. Otherwise
	// it is empty.
	Reason string `json:"reason,omitempty"`
	// CausedInside reports, if the outcome is Lost, that code in the sandbox caused it: a program there killed the
	// command's supervisor. Otherwise the daemon, the machine or Fumehood may have caused it.
	CausedInside bool `json:"caused_inside,omitempty"`

	Usage Usage `json:"usage,omitzero"` // resources used; zero if the transport cannot measure them

	// Leaked reports that the command, or the process running it, was to be killed, but some of its processes may
	// still run: the transport cannot kill them or lacks the permission, for example for another user's processes.
	// They end with the sandbox.
	Leaked bool `json:"leaked,omitempty"`
}

// Usage describes the resources that a command used, and events in its container while it ran. Events of the
// container need not be caused by the command: report them as "during" it, never "by" it.
type Usage struct {
	// User is the CPU time in user mode of the command and of all its descendants that have ended, also of those that
	// nobody waited for or that were killed. Not counted are those whose parent ignores SIGCHLD, as the kernel drops
	// their time, and those that still run.
	User   time.Duration `json:"-"`
	System time.Duration `json:"-"` // the same, in the kernel
	// MaxRSS is the peak resident memory of the largest of the command and the descendants it waited for, in bytes. A small process counts as
	// about 4 MB: Linux includes the memory of the process before exec, which here is the guest's.
	MaxRSS     int64 `json:"max_rss"`
	MemoryPeak int64 `json:"memory_peak"` // bytes: peak of the container since it started; 0 if it cannot be read
	OOMKills   int64 `json:"oom_kills"`   // processes of the container killed by the out-of-memory killer meanwhile
	PIDsLimits int64 `json:"pids_limits"` // how often the container reached its process limit meanwhile
}

// Success reports whether the program exited by itself with code 0.
func (r *Result) Success() bool { return r.Outcome == Exited && r.ExitCode == 0 }

// Output is the kept part of one stream: its end, up to the cap.
type Output struct {
	Bytes []byte
	Total int64 // number of bytes the program wrote in total
}

// Truncated reports whether the beginning of the stream was dropped because of the cap.
func (o Output) Truncated() bool { return o.Total > int64(len(o.Bytes)) }

// Text returns the output as valid UTF-8: each run of invalid bytes becomes one U+FFFD. If the cap cut a character
// in two, the rest of that character is omitted.
func (o Output) Text() string { return strings.ToValidUTF8(string(o.Whole()), string(utf8.RuneError)) }

// Whole returns the bytes without the rest of a character that the cap cut in two.
func (o Output) Whole() []byte {
	b := o.Bytes
	if o.Truncated() {
		for i := 0; i < utf8.UTFMax-1 && len(b) > 0 && !utf8.RuneStart(b[0]); i++ {
			b = b[1:]
		}
	}
	return b
}

// Stream names one of a command's output streams.
type Stream int

const (
	// Stdout is standard output, or the terminal's output with a TTY.
	Stdout Stream = 1
	// Stderr is standard error.
	Stderr Stream = 2
)

// String returns "stdout" or "stderr".
func (s Stream) String() string {
	if s == Stderr {
		return "stderr"
	}
	return "stdout"
}

// Event is one event of a running command: it wrote output or, in the last event, it ended.
type Event struct {
	Stream Stream // stream of Data; 0 in the last event
	Data   []byte // the receiver may keep it; empty in the last event, and if there is only Skipped to report
	// Skipped counts bytes of Stream dropped before Data while there was no listener. It is always 0 for a listener
	// that was present from the start.
	Skipped int64
	Result  *Result // set in the last event only
}

// Chunk is a piece of one of a command's output streams.
type Chunk struct {
	// Offset is the position of Data, in bytes from the beginning of the stream. If it is beyond the requested
	// offset, or beyond the end of the previous chunk, the bytes between are no longer held.
	Offset int64
	// Data may be kept by the receiver. It is empty only in a last chunk that reports dropped bytes and has none
	// that are held.
	Data []byte
}
