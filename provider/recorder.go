package provider

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fumehood/fumehood"

	"github.com/fumehood/fumehood/journal"
)

// Recorder takes down in a journal what concerns one sandbox. It is for providers, which tell it what happens before
// there is a Sandbox; the rest is taken down above them. Its methods may be called by many goroutines at once.
type Recorder struct {
	to     *slog.Logger // nil takes nothing down
	info   fumehood.Info
	kept   bool
	lastID atomic.Int64 // of commands

	mu      sync.Mutex // also for info.Labels
	secrets []secret   // longest first
}

// Failed returns the error of a start, from which Redact then takes the values that Hide was told of as well. A provider's
// Start returns its errors by it.
func (r *Recorder) Failed(err error) error { return &startError{err, r} }

type startError struct {
	error
	rec *Recorder
}

func (e *startError) Unwrap() error { return e.error }

// Redact returns the error of a start by this spec with a text that has no value of the sandbox's variables, for what keeps
// errors.
func Redact(err error, spec *fumehood.Spec) error {
	text := NewRecorder(spec).clip(nil).redact(err.Error())
	var e *startError
	if errors.As(err, &e) {
		text = e.rec.clip(nil).redact(text)
	}
	return &redactedError{err, text}
}

type redactedError struct {
	error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.error }

// secret is text that no line may have.
type secret struct{ name, value string }

// NewRecorder makes the recorder of the sandbox that is to be started by a spec, which has its Name by then.
func NewRecorder(s *fumehood.Spec) *Recorder {
	r := newRecorder(s.Journal, Describe(s, fumehood.Info{Name: s.Name}), s.Keep)
	r.Hide(s.Env)
	if c := s.Compose; c != nil {
		r.Hide(c.Env)
		r.Hide(hostEnv(c))
	}
	return r
}

func newRecorder(to *slog.Logger, info fumehood.Info, kept bool) *Recorder {
	return &Recorder{to: to, info: info, kept: kept}
}

// secretLength is the least length of what is looked for in texts, in bytes: what is shorter is anywhere.
const secretLength = 4

// Hide says which variables the sandbox has. In all lines from now on a value of theirs of four bytes and more is
// replaced by "[redacted NAME]".
func (r *Recorder) Hide(env map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = withSecrets(r.secrets, env)
}

// withSecrets adds the values of variables, and how they read when they are quoted.
func withSecrets(secrets []secret, env map[string]string) []secret {
	if len(env) == 0 {
		return secrets
	}
	all := slices.Clone(secrets)
	for _, name := range slices.Sorted(maps.Keys(env)) {
		value := env[name]
		quoted := strconv.Quote(value)
		for _, v := range []string{value, quoted[1 : len(quoted)-1]} {
			if s := (secret{name, v}); len(v) >= secretLength && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b secret) int { return len(b.value) - len(a.value) })
	return all
}

// Phase marks the beginning of a phase of the sandbox's life, and is called again for its end.
func (r *Recorder) Phase(name string) (end func(error)) {
	if r.to == nil {
		return func(error) {}
	}
	began := time.Now()
	return func(err error) {
		c := r.clip(nil)
		line := journal.Phase{Phase: c.text(name, maxName), MS: millis(time.Since(began)), Error: c.failure(err)}
		line.Head = r.head("phase", c)
		journal.Log(r.to, &line)
	}
}

// NetworkAccess says to which network a sandbox was given access.
type NetworkAccess struct {
	// Network is a Spec's Network; "internal" and "project" are a Compose project's own ones.
	Network string
	Egress  string // EgressInternet, NetworkNone, or "unknown" of a network that was there already
	Subnets []string
	Ports   map[string][]fumehood.Port // that can be reached, by service
}

// Network takes down the decision about the sandbox's network.
func (r *Recorder) Network(n NetworkAccess) {
	if r.to == nil {
		return
	}
	c := r.clip(nil)
	line := journal.Network{Network: c.text(n.Network, maxName), Egress: n.Egress, Subnets: c.texts(n.Subnets, maxText)}
	for _, service := range slices.Sorted(maps.Keys(n.Ports)) {
		for _, p := range n.Ports[service] {
			if len(line.Ports) == maxEntries {
				c.cut = true
				break
			}
			line.Ports = append(line.Ports, journal.Port{
				Service: c.text(service, maxName/4), Address: c.text(p.Address, maxName/4), Host: p.Host, Container: p.Container, Protocol: p.Protocol,
			})
		}
	}
	line.Head = r.head("network", c)
	journal.Log(r.to, &line)
}

// started takes down that the sandbox is there.
func (r *Recorder) started(info fumehood.Info) {
	if r.to == nil {
		return
	}
	c := r.clip(nil)
	line := journal.Sandbox{Provider: info.Provider, ConfigFile: c.text(info.ConfigFile, maxPath), Env: c.names(info.EnvNames), Kept: r.kept}
	room := maxText
	for _, s := range info.Services {
		l := journal.Service{Name: c.text(s.Name, maxName), Container: c.text(s.Container, maxName), Image: c.text(s.Image, maxName)}
		if room -= len(l.Name) + len(l.Container) + len(l.Image); room < 0 || len(line.Services) == maxEntries {
			c.cut = true
			break
		}
		line.Services = append(line.Services, l)
	}
	line.Head = r.head("sandbox", c)
	journal.Log(r.to, &line)
}

// command takes down that a command is about to be handed over, and returns what takes down its end.
func (r *Recorder) command(service string, cmd fumehood.Cmd) (end func(*fumehood.Result, error)) {
	if r.to == nil {
		return func(*fumehood.Result, error) {}
	}
	id, began := r.lastID.Add(1), time.Now()
	c := r.clip(cmd.Env)
	line := journal.Command{
		ID: id, Service: c.text(service, maxName), User: c.text(cmd.User, maxName), Dir: c.text(cmd.Dir, maxPath), Args: c.texts(cmd.Args, maxText),
		Env: c.names(slices.Sorted(maps.Keys(cmd.Env))), Stdin: cmd.Stdin != nil || cmd.StdinPipe, TimeoutMS: millis(cmd.Timeout),
		Detached: cmd.Detach, ViaEngine: cmd.ViaEngine, TTY: cmd.TTY,
	}
	line.Head = r.head("command", c)
	journal.Log(r.to, &line)
	return func(res *fumehood.Result, err error) {
		c := r.clip(cmd.Env)
		line := journal.End{ID: id, Service: c.text(service, maxName), MS: millis(time.Since(began)), Error: c.failure(err)}
		if res != nil {
			line.Outcome, line.ExitCode, line.Signal, line.Leaked = string(res.Outcome), &res.ExitCode, res.Signal, res.Leaked
			line.Reason, line.MS = c.text(res.Reason, maxText), millis(res.Duration)
			line.Stdout, line.Stderr = res.Stdout.Total, res.Stderr.Total
			if u := res.Usage; u != (fumehood.Usage{}) {
				line.Usage = &journal.Usage{
					UserMS: millis(u.User), SystemMS: millis(u.System), MaxRSS: u.MaxRSS, MemoryPeak: u.MemoryPeak, OOMKills: u.OOMKills, PIDsLimits: u.PIDsLimits,
				}
			}
		}
		line.Head = r.head("end", c)
		journal.Log(r.to, &line)
	}
}

// fileOp is a file operation that is under way.
type fileOp struct {
	r       *Recorder
	line    journal.File
	began   time.Time
	counted atomic.Int64 // bytes
	once    sync.Once
}

// file begins a file operation; nil where nothing is taken down.
func (s *service) file(op, path, target string) *fileOp {
	r := s.sb.recorder.Load()
	if r == nil || r.to == nil {
		return nil
	}
	return &fileOp{r: r, began: time.Now(), line: journal.File{Op: op, Service: s.info.Name, User: s.user, Path: path, Target: target}}
}

// count counts what is read of r.
func (f *fileOp) count(r io.Reader) io.Reader {
	if f == nil {
		return r
	}
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		f.add(n)
		return n, err
	})
}

func (f *fileOp) add(n int) {
	if f != nil {
		f.counted.Add(int64(n))
	}
}

// end takes the operation down, once.
func (f *fileOp) end(err error) {
	if f == nil {
		return
	}
	f.once.Do(func() {
		c := f.r.clip(nil)
		line := f.line
		line.Service, line.User = c.text(line.Service, maxName), c.text(line.User, maxName)
		line.Path, line.Target = c.text(line.Path, maxPath), c.text(line.Target, maxPath)
		line.Bytes, line.MS, line.Error = f.counted.Load(), millis(time.Since(f.began)), c.failure(err)
		line.Head = f.r.head("file", c)
		journal.Log(f.r.to, &line)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// The most bytes that lines have of texts. A byte may take six in JSON, so that the texts of one line are less than
// a sixth of journal.MaxLine.
const (
	maxName    = 256
	maxText    = 2 << 10
	maxPath    = 2 << 10
	maxEntries = 32
)

// clip makes texts fit for a line: secrets are replaced, and what is too long is cut.
type clip struct {
	secrets []secret
	cut     bool
}

func (r *Recorder) clip(env map[string]string) *clip {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &clip{secrets: withSecrets(r.secrets, env)}
}

// redact replaces secrets.
func (c *clip) redact(text string) string {
	for _, s := range c.secrets {
		text = strings.ReplaceAll(text, s.value, redacted(s.name))
	}
	return text
}

func redacted(name string) string { return "[redacted " + name + "]" }

func (c *clip) text(text string, most int) string {
	text = c.redact(text)
	if len(text) > most {
		c.cut = true
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// texts are as many as have room together, of at most maxEntries, the last one of them perhaps cut.
func (c *clip) texts(all []string, most int) []string {
	kept := []string{}
	for _, t := range all {
		if len(kept) == maxEntries || most <= 0 {
			c.cut = true
			break
		}
		t = c.text(t, most)
		kept = append(kept, t)
		most -= len(t)
	}
	return kept
}

// names says of variables that there are values, and not which.
func (c *clip) names(names []string) map[string]string {
	if len(names) == 0 {
		return nil
	}
	env := map[string]string{}
	room := maxText / 2
	for _, name := range names {
		if room -= len(name); room < 0 || len(env) == maxEntries {
			c.cut = true
			break
		}
		env[name] = "[redacted]"
	}
	return env
}

func (c *clip) failure(err error) *journal.Error {
	if err == nil {
		return nil
	}
	return &journal.Error{Class: string(fumehood.CodeOf(err)), Message: c.text(err.Error(), maxText)}
}

// head begins a line. It comes last, for it says whether any text was cut.
func (r *Recorder) head(kind string, c *clip) journal.Head {
	r.mu.Lock()
	labels := r.info.Labels
	r.mu.Unlock()
	h := journal.Head{Kind: kind, Sandbox: r.info.Name}
	own := clip{}
	room := maxText
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if len(name) >= room {
			own.cut = true // shorter ones may have room
			continue
		}
		if h.Labels == nil {
			h.Labels = map[string]string{}
		}
		value := own.text(labels[name], min(maxName, room-len(name)))
		h.Labels[name] = value
		room -= len(name) + len(value)
	}
	h.Cut = c.cut || own.cut
	return h
}

func (sb *sandbox) Record(to *slog.Logger) {
	r := newRecorder(to, sb.Info(), false)
	sb.recorder.Store(r)
}

func (sb *sandbox) Phase(name string) (end func(error)) { return sb.recorder.Load().Phase(name) }

// phase is Phase for a step of our own.
func (sb *sandbox) phase(name string, step func() error) error {
	end := sb.Phase(name)
	err := step()
	end(err)
	return err
}

// millis writes a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
