// Package reaper is a second process of this program that outlives it, however it ends, and then removes what it has
// left. Nobody can promise that for a process from within: SIGKILL cannot be caught.
//
// The reaper is this very program, started again in a session of its own, with a variable that has Wait wait there, which
// its main function calls first. The standard input of the reaper is a pipe whose other end this process alone has: the kernel closes it when the process ends, which
// nothing else can delay or forge. Over it come the jobs, which say what is to be removed.
package reaper

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/fumehood/fumehood/internal/owner"
)

// variable makes this program a reaper. Its value is the process to wait for, in the text form of owner.ID.
const variable = "FUMEHOOD_REAPER"

// message is a line of JSON from a process to its reaper.
type message struct {
	ID   int             `json:"id"`
	Job  json.RawMessage `json:"job,omitempty"` // to be done when the process has ended
	Done bool            `json:"done,omitempty"`
}

// errNoWait: a process of this program that is started again would not become a reaper.
var errNoWait = errors.New("the program's main function does not call docker.RunReaper first")

// errNoProgram: this process's program is not a Go program that could be started again.
var errNoProgram = errors.New("this process runs as a library in another program, which cannot be started as its reaper")

const (
	// sendTimeout bounds the hand-over of a message to a reaper that does not read.
	sendTimeout = 2 * time.Second
	// endTimeout bounds the wait for the end of a reaper that has nothing to do.
	endTimeout = 5 * time.Second
)

// Trust is a job that the reaper has.
type Trust struct{ id int }

// The reaper of this process: there is one at most, while there are jobs.
var current struct {
	mu       sync.Mutex
	possible bool // Wait was called
	jobs     map[int]json.RawMessage
	last     int           // the latest job's id
	pipe     *os.File      // leads to the reaper; nil where there is none
	ended    chan struct{} // closed when the reaper has ended
}

// Entrust hands a job to this process's reaper, which is started if there is none. The job is done when this process
// has ended, unless Release comes first.
func Entrust(job json.RawMessage) (*Trust, error) {
	c := &current
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := program(); err != nil {
		return nil, err
	}
	if !c.possible {
		return nil, errNoWait
	}
	if c.jobs == nil {
		c.jobs = map[int]json.RawMessage{}
	}
	if err := restart(); err != nil {
		return nil, err
	}
	c.last++
	if err := send(message{ID: c.last, Job: job}); err != nil {
		return nil, err
	}
	c.jobs[c.last] = job
	return &Trust{c.last}, nil
}

// Ensure starts another reaper where somebody has ended the one that there was, with all that it had been entrusted
// with.
func (t *Trust) Ensure() error {
	current.mu.Lock()
	defer current.mu.Unlock()
	return restart()
}

// Release takes the job back: there is nothing left to be removed. With the last one, the reaper ends.
func (t *Trust) Release() {
	c := &current
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.jobs, t.id)
	if c.pipe == nil {
		return
	}
	_ = send(message{ID: t.id, Done: true}) // a reaper that does not read has ended
	if len(c.jobs) > 0 {
		return
	}
	_ = c.pipe.Close()
	c.pipe = nil
	select {
	case <-c.ended:
	case <-time.After(endTimeout): // it has been stopped by somebody, and ends when it goes on
	}
}

// restart makes sure that there is a reaper, which has all jobs.
func restart() error {
	c := &current
	if c.pipe != nil {
		select {
		case <-c.ended:
			_ = c.pipe.Close()
			c.pipe = nil
		default:
			return nil
		}
	}
	if err := launch(); err != nil {
		return fmt.Errorf("start the reaper: %w", err)
	}
	for id, job := range c.jobs {
		if err := send(message{ID: id, Job: job}); err != nil {
			return err
		}
	}
	return nil
}

// send writes a message to the reaper. Those of a process that is killed meanwhile arrive whole, or not at all.
func send(m message) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_ = current.pipe.SetWriteDeadline(time.Now().Add(sendTimeout)) // where a pipe has none, a write that fits in its buffer does not block
	if _, err := current.pipe.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("speak to the reaper: %w", err)
	}
	return nil
}

// launch starts the reaper.
func launch() error {
	self, err := owner.Self()
	if err != nil {
		return err
	}
	program, err := program()
	if err != nil {
		return err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Args = []string{processName}
	cmd.Env = append(os.Environ(), variable+"="+self.String())
	cmd.Stdin, cmd.SysProcAttr = r, detached
	err = cmd.Start()
	_ = r.Close()
	if err != nil {
		return errors.Join(err, w.Close())
	}
	ended := make(chan struct{})
	go func() { // until the reaper has ended, which Release awaits
		defer close(ended)
		_ = cmd.Wait()
	}()
	current.pipe, current.ended = w, ended
	return nil
}

// processName is how lists of processes call a reaper.
const processName = "fumehood-reaper"

// program is the path of this process's program, also where the file has been replaced or removed since.
func program() (string, error) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-buildmode" && !slices.Contains([]string{"exe", "pie"}, s.Value) {
				return "", errNoProgram
			}
		}
	}
	if runtime.GOOS == "linux" {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}
