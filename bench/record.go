package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// sample is one measurement, a line of the file.
type sample struct {
	Row, Contender string
	Took           time.Duration
}

// key identifies a group of samples.
type key struct{ row, contender string }

// recorder writes samples to a file in the Go benchmark format, after lines with the machine's facts, and keeps them.
// benchstat compares such files: `benchstat -col /by FILE` the contenders of one run, `benchstat OLD NEW` two runs.
type recorder struct {
	path    string
	file    *os.File
	buf     *bufio.Writer
	err     error // the first write error
	samples map[key][]time.Duration
}

func newRecorder(dir string, f facts) (*recorder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "bench-"+f.Date.Format("20060102T150405.000Z")+".txt")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	r := &recorder{path: path, file: file, buf: bufio.NewWriter(file), samples: map[key][]time.Duration{}}
	_, r.err = r.buf.WriteString(f.config())
	return r, nil
}

func (r *recorder) add(s sample) {
	k := key{s.Row, s.Contender}
	r.samples[k] = append(r.samples[k], s.Took)
	if r.err == nil {
		_, r.err = r.buf.WriteString(s.line())
	}
}

func (r *recorder) close() error {
	if r.err == nil {
		r.err = r.buf.Flush()
	}
	return errors.Join(r.err, r.file.Close())
}

// line returns the sample in the Go benchmark format.
func (s sample) line() string {
	return fmt.Sprintf("Benchmark%s/by=%s 1 %d ns/op\n", benchmarkName(s.Row), benchmarkName(s.Contender), s.Took.Nanoseconds())
}

// benchmarkName returns a name in the form of the Go benchmark format: without spaces, slashes or a trailing "-8",
// which would be a number of processors.
func benchmarkName(name string) string {
	words := strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	for i, w := range words {
		words[i] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}

// config returns the facts as configuration lines of the Go benchmark format.
func (f facts) config() string {
	var b strings.Builder
	for _, kv := range [][2]string{
		{"date", f.Date.Format(time.RFC3339)},
		{"revision", f.Revision},
		{"go", f.Go},
		{"host", f.Host},
		{"cores", fmt.Sprint(f.Cores)},
		{"memory-mib", fmt.Sprint(f.MemoryMiB)},
		{"kernel", f.Kernel},
		{"engine", f.Engine},
		{"storage", f.Storage},
		{"cgroups", f.Cgroups},
		{"runtime", f.Runtime},
		{"cli", f.CLI},
		{"python", f.Python},
		{"load", f.Load},
		{"image", f.Image},
		{"rounds", fmt.Sprint(f.Rounds)},
	} {
		if kv[1] != "" {
			fmt.Fprintf(&b, "%s: %s\n", kv[0], kv[1])
		}
	}
	return b.String()
}
