package fumehood

import (
	"strings"
	"time"
	"unicode/utf8"
)

// Outcome says how a program ended. The zero value means that none is known yet.
type Outcome string

const (
	// Exited: the program ended by itself; ExitCode is its own.
	Exited Outcome = "exited"
	// Signaled: a signal ended it, which was not sent because of a limit of ours.
	Signaled Outcome = "signaled"
	// TimedOut: its wall limit passed on our clock, and we killed it.
	TimedOut Outcome = "timed-out"
	// OutOfMemory: it was killed, and the kernel's out-of-memory killer struck its container meanwhile.
	OutOfMemory Outcome = "out-of-memory"
	// Lost: the service died under it; how the program ended is not known. It is never run again.
	Lost Outcome = "lost"
)

// Result is what is known of a command that ran.
type Result struct {
	Outcome  Outcome `json:"outcome"`
	ExitCode int     `json:"exit_code"`        // the program's own; 128+n for signal n; -1 when timed out or lost
	Signal   int     `json:"signal,omitempty"` // the signal's number on Linux where the outcome is Signaled, else 0

	Stdout Output `json:"stdout"`
	Stderr Output `json:"stderr"` // always empty with a TTY, where both streams are one

	Started  time.Time     `json:"started,omitzero"` // when the command was handed over, on the host's clock
	Duration time.Duration `json:"-"`                // from then until its end was known and its output drained

	// Reason says what is known of the reason where the outcome is Lost; else it is empty.
	Reason string `json:"reason,omitempty"`
	// CausedInside says, where the outcome is Lost, that it is so by what was done in the sandbox: a program there has killed what
	// supervised the command. Else it may have been the daemon, the machine or we.
	CausedInside bool `json:"caused_inside,omitempty"`

	Usage Usage `json:"usage,omitzero"` // what it used; zero where the transport cannot tell

	// Leaked says that the command was to be killed, or what ran it was, and that some of its processes may still run,
	// because the transport cannot end them, or may not: another user's, say. They end with the sandbox.
	Leaked bool `json:"leaked,omitempty"`
}

// Usage is what a command used, and what struck its container while it ran. What is of the container
// need not be the command's doing: say "during", never "by".
type Usage struct {
	User   time.Duration `json:"-"` // CPU time of the command and of the descendants that it waited for
	System time.Duration `json:"-"` // likewise, in the kernel
	// MaxRSS is the bytes of memory of the largest process among them. A small one counts as some 4 MB: Linux counts what
	// a process had before its program replaced the one that started it, the guest's here.
	MaxRSS     int64 `json:"max_rss"`
	MemoryPeak int64 `json:"memory_peak"` // bytes: the container's peak since it started; 0 where it cannot be read
	OOMKills   int64 `json:"oom_kills"`   // processes of the container that the out-of-memory killer ended meanwhile
	PIDsLimits int64 `json:"pids_limits"` // how often the container's limit of processes was met meanwhile
}

// Success reports whether the program exited by itself with code 0.
func (r *Result) Success() bool { return r.Outcome == Exited && r.ExitCode == 0 }

// Output is what was kept of one stream: its end, as large as the cap.
type Output struct {
	Bytes []byte
	Total int64 // bytes that the program wrote in all
}

// Truncated reports whether the beginning of the stream was dropped to hold the cap.
func (o Output) Truncated() bool { return o.Total > int64(len(o.Bytes)) }

// Text returns the output as valid UTF-8: each run of invalid bytes becomes one U+FFFD. Where the
// cap cut into a character, the rest of that character is left out rather than shown broken.
func (o Output) Text() string { return strings.ToValidUTF8(string(o.Whole()), string(utf8.RuneError)) }

// Whole returns the bytes without what the cap has left of a character that it cut into.
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

// Event is one thing that a running command did: it wrote, or (the last event) it ended.
type Event struct {
	Stream Stream // which stream Data is of; 0 in the last event
	Data   []byte // the receiver may keep it; empty in the last event, and where Skipped is all there is to tell
	// Skipped counts bytes of Stream that were dropped before Data because nobody was listening;
	// always 0 for a listener that was there from the start.
	Skipped int64
	Result  *Result // set in the last event only
}

// Chunk is a piece of one of a command's output streams.
type Chunk struct {
	// Offset is where Data begins, in bytes from the beginning of the stream. Where that is beyond what
	// was asked for, or beyond the end of the chunk before, the bytes between are not held any more.
	Offset int64
	// Data may be kept by the receiver. It is empty only in a last chunk that tells of bytes that are not
	// held, and of none that are.
	Data []byte
}
