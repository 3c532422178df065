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
type Trust struct{ job json.RawMessage }

// The reaper of this process: there is one at most, while there are jobs.
var current struct {
	mu       sync.Mutex
	possible bool // Wait was called
	jobs     []*Trust
	pipe     *os.File      // leads to the reaper; nil where there is none
	ended    chan struct{} // closed when the reaper has ended
}

// Entrust hands a job to this process's reaper, which is started if there is none. The job is done when this process
// has ended, unless Release comes first.
func Entrust(job json.RawMessage) (*Trust, error) {
	c, t := &current, &Trust{job}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := restart(); err != nil {
		return nil, err
	}
	c.jobs = append(c.jobs, t)
	if err := send(); err != nil {
		c.jobs = c.jobs[:len(c.jobs)-1]
		return nil, err
	}
	return t, nil
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
	c.jobs = slices.DeleteFunc(c.jobs, func(j *Trust) bool { return j == t })
	if c.pipe == nil {
		return
	}
	_ = send() // a reaper that does not read has ended
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

// restart starts a reaper where none runs, and gives it all jobs.
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
	return send()
}

// send writes a line of JSON to the reaper, with all jobs. That of a process that is killed meanwhile arrives whole, or does
// not count.
func send() error {
	jobs := make([]json.RawMessage, len(current.jobs))
	for i, t := range current.jobs {
		jobs[i] = t.job
	}
	line, err := json.Marshal(jobs)
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
	program, err := program()
	if err != nil {
		return err
	}
	if !current.possible {
		return errNoWait
	}
	self, err := owner.Self()
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
