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
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
	"github.com/fumehood/fumehood/journal"
)

// Recorder writes the journal of one sandbox. Providers use it for events before there is a Sandbox; package
// provider records the rest. Its methods may be called by multiple goroutines concurrently.
type Recorder struct {
	to     *slog.Logger // nil disables recording
	info   fumehood.Info
	kept   bool
	lastID atomic.Int64 // of the last command

	mu      sync.Mutex // also for info.Labels
	secrets []secret   // longest first
}

// StartError wraps the error of a failed start, so that Redact also removes values passed to Hide. A provider's Start
// returns its errors through Failed, except those of Spec.Validate. It sets their Op, such as "start sandbox NAME".
func (r *Recorder) StartError(err error) error { return &startError{err, r} }

type startError struct {
	error
	rec *Recorder
}

func (e *startError) Unwrap() error { return e.error }

// Redact returns the error of a start with this spec, without values of the sandbox's variables in its text. It is
// for errors that are stored.
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

// secret is text that must not appear in any line.
type secret struct{ name, value string }

// NewRecorder returns the recorder of a sandbox to be started from a spec, whose Name must be set. It hides the values
// of Spec.Env.
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

// secretLength is the minimum length of redacted values in bytes: shorter values occur everywhere.
const secretLength = 4

// Hide adds the sandbox's variables. From now on, values of four bytes or more are replaced by "[redacted NAME]" in
// all lines.
func (r *Recorder) Hide(env map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secrets = withSecrets(r.secrets, env)
}

// withSecrets adds the values of variables, plain and quoted.
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

// Phase marks the beginning of a phase of the sandbox. The caller calls end at its end.
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

// NetworkAccess describes the network to which a sandbox has access.
type NetworkAccess struct {
	// Network is the Network of a Spec. For the networks of a Compose project it is "internal" or "project".
	Network string
	Egress  string // EgressInternet, NetworkNone, or "unknown" for a network that already existed
	Subnets []string
	Ports   map[string][]fumehood.Port // reachable ports, by service
}

// Network records the network access of the sandbox.
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

// recordStart records that the sandbox has started.
func (r *Recorder) recordStart(info fumehood.Info) {
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

// command records that a command is about to start, and returns a function that records its end.
func (r *Recorder) command(service string, cmd fumehood.Cmd) (end func(*fumehood.Result, error)) {
	if r.to == nil {
		return func(*fumehood.Result, error) {}
	}
	id, began := r.lastID.Add(1), time.Now()
	c := r.clip(cmd.Env)
	line := journal.Command{
		ID: id, Service: c.text(service, maxName), User: journal.Text(c.text(cmd.User, maxName)), Dir: journal.Text(c.text(cmd.Dir, maxPath)), Args: jsontext.Of(c.texts(cmd.Args, maxText)),
		Env: c.names(slices.Sorted(maps.Keys(cmd.Env))), Stdin: cmd.Stdin != nil || cmd.StdinPipe, TimeoutMS: millis(cmd.Timeout), CPUTimeMS: millis(cmd.CPUTime),
		Detached: cmd.Detach, ViaEngine: cmd.ViaEngine, TTY: cmd.TTY,
	}
	line.Head = r.head("command", c)
	journal.Log(r.to, &line)
	return func(res *fumehood.Result, err error) {
		c := r.clip(cmd.Env)
		line := journal.End{ID: id, Service: c.text(service, maxName), MS: millis(time.Since(began)), Error: c.failure(err)}
		if res != nil {
			line.Outcome, line.ExitCode, line.Signal, line.Leaked = string(res.Outcome), &res.ExitCode, res.Signal, res.Leaked
			line.Reason, line.MS = c.message(res.Reason), millis(res.Duration)
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

// fileOp is a file operation in progress.
type fileOp struct {
	r       *Recorder
	line    journal.File
	began   time.Time
	counted atomic.Int64 // bytes
	once    sync.Once
}

// file starts recording a file operation. It returns nil if recording is disabled.
func (s *service) file(op, path, target string) *fileOp {
	r := s.sb.recorder.Load()
	if r == nil || r.to == nil {
		return nil
	}
	return &fileOp{r: r, began: time.Now(), line: journal.File{Op: op, Service: s.info.Name, User: journal.Text(s.user), Path: journal.Text(path), Target: journal.Text(target)}}
}

// count returns a reader that counts the bytes read from r.
func (f *fileOp) count(r io.Reader) io.Reader {
	if f == nil {
		return r
	}
	return readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p)
		f.addBytes(n)
		return n, err
	})
}

func (f *fileOp) addBytes(n int) {
	if f != nil {
		f.counted.Add(int64(n))
	}
}

// record records the operation, once.
func (f *fileOp) record(err error) {
	if f == nil {
		return
	}
	f.once.Do(func() {
		c := f.r.clip(nil)
		line := f.line
		line.Service, line.User = c.text(line.Service, maxName), journal.Text(c.text(string(line.User), maxName))
		line.Path, line.Target = journal.Text(c.text(string(line.Path), maxPath)), journal.Text(c.text(string(line.Target), maxPath))
		line.Bytes, line.MS, line.Error = f.counted.Load(), millis(time.Since(f.began)), c.failure(err)
		line.Head = f.r.head("file", c)
		journal.Log(f.r.to, &line)
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Maximum bytes of text in a line. A byte takes up to six bytes in JSON, so the texts of one line are kept below a
// sixth of journal.MaxLine.
const (
	maxName    = 256
	maxText    = 2 << 10
	maxPath    = 2 << 10
	maxEntries = 32
)

// clip prepares text for a line: it redacts secrets and cuts long text.
type clip struct {
	secrets []secret
	cut     bool
}

func (r *Recorder) clip(env map[string]string) *clip {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &clip{secrets: withSecrets(r.secrets, env)}
}

// redact replaces secrets in text.
func (c *clip) redact(text string) string {
	for _, s := range c.secrets {
		text = strings.ReplaceAll(text, s.value, redaction(s.name))
	}
	return text
}

func redaction(name string) string { return "[redacted " + name + "]" }

func (c *clip) text(text string, most int) string {
	text = c.redact(text)
	if len(text) > most {
		c.cut = true
		text = text[:most]
		for n := 1; n < utf8.UTFMax && n <= len(text); n++ { // a character that was cut is left out
			if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
				if !utf8.FullRuneInString(last) {
					text = text[:len(text)-n]
				}
				break
			}
		}
	}
	return text
}

// message returns text that people read.
func (c *clip) message(text string) string { return c.text(jsontext.Escape(c.redact(text)), maxText) }

// texts returns as many texts as fit into most bytes together, at most maxEntries. The last one may be cut.
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

// names returns the variables' names with redacted values.
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
		env[jsontext.Escape(name)] = "[redacted]"
	}
	return env
}

func (c *clip) failure(err error) *journal.Error {
	if err == nil {
		return nil
	}
	return &journal.Error{Class: string(fumehood.CodeOf(err)), Message: c.message(err.Error())}
}

// head returns the head of a line. It is called last, because it reports whether text was cut.
func (r *Recorder) head(kind string, c *clip) journal.Head {
	r.mu.Lock()
	labels := r.info.Labels
	r.mu.Unlock()
	h := journal.Head{Kind: kind, Sandbox: r.info.Name}
	own := clip{}
	room := maxText
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if len(name) >= room {
			own.cut = true // shorter names may still fit
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

// phase is Phase for an internal step.
func (sb *sandbox) phase(name string, step func() error) error {
	end := sb.Phase(name)
	err := step()
	end(err)
	return err
}

// millis returns a duration in milliseconds, with microsecond resolution.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
