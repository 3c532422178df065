// Package reaper runs a second process of this program, which outlives it and then removes what it left, however it
// ended. A process cannot guarantee that itself, because SIGKILL cannot be caught.
//
// The reaper is this same program, started again in its own session. An environment variable makes Wait, which the
// program's main function calls first by Run, wait there. The reaper's standard input is a pipe, whose other end only this
// process has. The kernel closes that end when the process ends. Nothing else can delay or forge that. The jobs, which
// describe what to remove, are sent over the pipe.
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

// variable is the environment variable that makes this program a reaper. Its value is the process to wait for, in the
// text form of owner.ID.
const variable = "FUMEHOOD_REAPER"

// errNoWait is returned if this program, started again, would not become a reaper.
var errNoWait = errors.New("the program's main function does not call RunReaper of the provider's package first")

// errNoProgram is returned if this process does not run a Go program that can be started again.
var errNoProgram = errors.New("this process runs as a library in another program, which cannot be started as its reaper")

const (
	// sendTimeout bounds sending a message to a reaper that does not read.
	sendTimeout = 2 * time.Second
	// endTimeout bounds the wait for the exit of a reaper without jobs.
	endTimeout = 5 * time.Second
)

// task is a job with the name of its kind.
type task struct {
	Kind string          `json:"kind"`
	Job  json.RawMessage `json:"job"`
}

// Trust is a job that the reaper has.
type Trust struct{ task task }

// current is the reaper of this process. There is at most one, while there are jobs.
var current struct {
	mu       sync.Mutex
	possible bool // Run was called
	jobs     []*Trust
	pipe     *os.File      // to the reaper; nil without a reaper
	ended    chan struct{} // closed when the reaper has ended
}

// Entrust gives a job to this process's reaper, and starts the reaper if necessary. The job is done when this process
// has ended, unless it is released before. kind is a result of Kind. Run must have been called.
func Entrust(kind string, job Job) (*Trust, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	c, t := &current, &Trust{task{kind, text}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.possible {
		return nil, errNoWait
	}
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

// Ensure starts another reaper with all jobs if the previous one was killed.
func (t *Trust) Ensure() error {
	current.mu.Lock()
	defer current.mu.Unlock()
	return restart()
}

// Release withdraws the job, because nothing is left to remove. The reaper exits when no jobs are left.
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
	case <-time.After(endTimeout): // it was stopped, and exits when it continues
	}
}

// restart starts a reaper if none is running, and sends it all jobs.
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

// send writes a line of JSON with all jobs to the reaper. If this process is killed meanwhile, the line arrives
// completely or does not count.
func send() error {
	jobs := make([]task, len(current.jobs))
	for i, t := range current.jobs {
		jobs[i] = t.task
	}
	line, err := json.Marshal(jobs)
	if err != nil {
		return err
	}
	// If a pipe has no deadlines, a write that fits in its buffer does not block.
	_ = current.pipe.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, err := current.pipe.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("send to the reaper: %w", err)
	}
	return nil
}

// launch starts the reaper.
func launch() error {
	program, err := program()
	if err != nil {
		return err
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
	go func() { // runs until the reaper has ended; Release waits for that
		defer close(ended)
		_ = cmd.Wait()
	}()
	current.pipe, current.ended = w, ended
	return nil
}

// processName is the reaper's name in process lists.
const processName = "fumehood-reaper"

// program returns the path of this process's program, even if the file has been replaced or removed since.
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
