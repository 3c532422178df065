package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// sample is one measurement: one line of the file.
type sample struct {
	Round       int           `json:"round"`
	Row         string        `json:"row"`
	Contender   string        `json:"contender"`
	Nanoseconds time.Duration `json:"ns"`
}

// key is what samples are grouped by.
type key struct{ row, contender string }

// recorder writes samples to a file, below a line with the machine's facts, and keeps them.
type recorder struct {
	path    string
	file    *os.File
	buf     *bufio.Writer
	enc     *json.Encoder
	err     error // the first failure to write
	samples map[key][]time.Duration
}

func newRecorder(dir string, f facts) (*recorder, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "bench-"+f.Date.Format("20060102T150405.000Z")+".jsonl")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	r := &recorder{path: path, file: file, buf: bufio.NewWriter(file), samples: map[key][]time.Duration{}}
	r.enc = json.NewEncoder(r.buf)
	r.err = r.enc.Encode(map[string]facts{"facts": f})
	return r, nil
}

func (r *recorder) add(s sample) {
	k := key{s.Row, s.Contender}
	r.samples[k] = append(r.samples[k], s.Nanoseconds)
	if r.err == nil {
		r.err = r.enc.Encode(s)
	}
}

func (r *recorder) close() error {
	if r.err == nil {
		r.err = r.buf.Flush()
	}
	return errors.Join(r.err, r.file.Close())
}
