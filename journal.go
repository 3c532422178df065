package fumehood

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"sync"
	"time"
)

// Journal takes down what is done in sandboxes, one JSON object a line, in the order in which it was done: phases,
// commands with how they ended, file operations, networks. docs/journal.md has the schema of each line. Values of
// variables are never taken down, outputs and contents of files neither. Its methods may be called by many goroutines
// at once, and a journal may be that of many sandboxes, which its lines name. A nil one takes nothing down.
type Journal struct {
	log *slog.Logger

	mu   sync.Mutex
	w    io.Writer
	torn bool  // the last line that was written is not whole
	lost int64 // lines since one could last be written
	err  error // the first failure
}

// MaxJournalLine is the most bytes that one line of a journal has. What is left out for that is said by "cut".
const MaxJournalLine = 64 << 10

// NewJournal makes a journal that writes to w, which stays the caller's to close. Each line is one Write, and what is
// done waits for it. A write that fails fails nothing else: logger is told of the first one, and where lines can be
// written again, one says how many are missing. A nil logger tells nobody; Err does.
func NewJournal(w io.Writer, logger *slog.Logger) *Journal {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Journal{w: w, log: logger}
}

// Err is the first failure to write a line; nil where there was none.
func (j *Journal) Err() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// put writes one line.
func (j *Journal) put(line any) {
	text, err := encode(line)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil && j.lost > 0 {
		var gap []byte
		if gap, err = encode(lostLine{Time: now(), Kind: "lost", Lines: j.lost}); err == nil {
			err = j.write(gap)
		}
		if err == nil {
			j.lost = 0
		}
	}
	if err == nil {
		err = j.write(text)
	}
	if err == nil {
		return
	}
	j.lost++
	if j.err == nil {
		j.err = err
		j.log.Warn("the journal cannot be written: lines of it are missing", "error", err)
	}
}

// encode is a line with its end.
func encode(line any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it is for people too
	err := enc.Encode(line)
	return b.Bytes(), err
}

// write writes a line, and first ends the one before where that has no end; j.mu is held.
func (j *Journal) write(text []byte) error {
	if j.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := j.w.Write(text)
	if err == nil && n < len(text) {
		err = io.ErrShortWrite
	}
	switch {
	case err == nil, j.torn && n == 1:
		j.torn = false
	case n > 0:
		j.torn = true
	}
	return err
}

// now is the time as lines have it.
func now() time.Time { return time.Now().UTC().Round(0) }

// The lines of a journal, whose fields docs/journal.md describes.
type (
	lineHead struct {
		Time    time.Time         `json:"time"`
		Kind    string            `json:"kind"`
		Sandbox string            `json:"sandbox"`
		Labels  map[string]string `json:"labels,omitempty"`
		Cut     bool              `json:"cut,omitempty"`
	}
	lostLine struct {
		Time  time.Time `json:"time"`
		Kind  string    `json:"kind"`
		Lines int64     `json:"lines"`
	}
	sandboxLine struct {
		lineHead
		Provider   string            `json:"provider"`
		ConfigFile string            `json:"config_file,omitempty"`
		Services   []serviceLine     `json:"services"`
		Env        map[string]string `json:"env,omitempty"`
		Kept       bool              `json:"kept,omitempty"`
	}
	serviceLine struct {
		Name      string `json:"name"`
		Container string `json:"container,omitempty"`
		Image     string `json:"image,omitempty"`
	}
	phaseLine struct {
		lineHead
		Phase string     `json:"phase"`
		MS    float64    `json:"ms"`
		Error *lineError `json:"error,omitempty"`
	}
	networkLine struct {
		lineHead
		Network string     `json:"network"`
		Egress  string     `json:"egress"`
		Subnets []string   `json:"subnets,omitempty"`
		Ports   []portLine `json:"ports,omitempty"`
	}
	portLine struct {
		Service   string `json:"service"`
		Address   string `json:"address"`
		Host      int    `json:"host"`
		Container int    `json:"container"`
		Protocol  string `json:"protocol"`
	}
	commandLine struct {
		lineHead
		ID       int64             `json:"id"`
		Service  string            `json:"service"`
		User     string            `json:"user,omitempty"`
		Dir      string            `json:"dir,omitempty"`
		Args     []string          `json:"args"`
		Env      map[string]string `json:"env,omitempty"`
		Stdin    bool              `json:"stdin,omitempty"`
		LimitMS  float64           `json:"limit_ms,omitempty"`
		Detached bool              `json:"detached,omitempty"`
		Direct   bool              `json:"direct,omitempty"`
		TTY      bool              `json:"tty,omitempty"`
	}
	endLine struct {
		lineHead
		ID       int64      `json:"id"`
		Service  string     `json:"service"`
		Outcome  Outcome    `json:"outcome,omitempty"`
		ExitCode *int       `json:"exit_code,omitempty"`
		Signal   int        `json:"signal,omitempty"`
		Why      string     `json:"why,omitempty"`
		Unkilled bool       `json:"unkilled,omitempty"`
		MS       float64    `json:"ms"`
		Stdout   int64      `json:"stdout_bytes"`
		Stderr   int64      `json:"stderr_bytes"`
		Usage    *usageLine `json:"usage,omitempty"`
		Error    *lineError `json:"error,omitempty"`
	}
	usageLine struct {
		UserMS     float64 `json:"user_ms"`
		SystemMS   float64 `json:"system_ms"`
		MaxRSS     int64   `json:"max_rss"`
		Peak       int64   `json:"container_peak"`
		OOMKills   int64   `json:"oom_kills"`
		PIDsLimits int64   `json:"pids_limits"`
	}
	fileLine struct {
		lineHead
		Op      string     `json:"op"`
		Service string     `json:"service"`
		User    string     `json:"user,omitempty"`
		Path    string     `json:"path"`
		Target  string     `json:"target,omitempty"`
		Bytes   int64      `json:"bytes,omitempty"`
		MS      float64    `json:"ms"`
		Error   *lineError `json:"error,omitempty"`
	}
	lineError struct {
		Class   string `json:"class"`
		Message string `json:"message"`
	}
)

// millis writes a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
