package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/lazaret/lazaret"
)

// verdict is one row of the table.
type verdict struct {
	Program  string  `json:"program"`
	Outcome  string  `json:"outcome"`   // empty where we failed
	ExitCode int     `json:"exit_code"` // -1 where there is none
	Verdict  string  `json:"verdict"`
	Seconds  float64 `json:"seconds"`
	Output   int64   `json:"output"` // bytes
	Cut      bool    `json:"cut"`    // only the end of the output was kept
	LastLine string  `json:"last_line"`
	err      error   // why the program was not judged; nil where it was
}

// outcome says how the program ended, with the signal's name where one ended it.
func outcome(res *lazaret.Result) string {
	if res.Outcome != lazaret.Signalled {
		return string(res.Outcome)
	}
	name := map[int]string{4: "ILL", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 11: "SEGV", 15: "TERM"}[res.Signal]
	if name == "" {
		name = strconv.Itoa(res.Signal)
	}
	return "signalled " + name
}

// maxLine bounds the bytes that are looked at of a program's last line.
const maxLine = 200

// lastLine returns the last line that is not empty, as the program wrote it.
func lastLine(output []byte) string {
	output = bytes.TrimSpace(output)
	line := output[bytes.LastIndexByte(output, '\n')+1:]
	return string(line[:min(len(line), maxLine)])
}

// table prints verdicts, as a table of at most 100 columns or as JSON lines.
type table struct {
	out    io.Writer
	json   bool
	colour bool
	name   int // width of the first column
}

func newTable(out *os.File, programs []string, asJSON bool) *table {
	t := &table{out: out, json: asJSON, name: len("PROGRAM")}
	for _, p := range programs {
		t.name = max(t.name, min(len(p), 20))
	}
	info, err := out.Stat()
	t.colour = err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
	if !t.json {
		t.print("PROGRAM", "OUTCOME", "EXIT", "VERDICT", "", "TIME", "OUTPUT", "LAST LINE")
	}
	return t
}

func (t *table) row(v verdict) {
	if t.json {
		_ = json.NewEncoder(t.out).Encode(v) // whoever closed our output does not want the rest
		return
	}
	if v.Verdict == failure { // the columns say nothing: use their room for what went wrong
		_, _ = fmt.Fprintf(t.out, "%-*s  %s  %s\n", t.name, escape(v.Program, t.name),
			t.paint(failure, yellow), escape(v.LastLine, width-t.name-len(failure)-4))
		return
	}
	code, colour, last := "-", red, v.LastLine
	if v.ExitCode >= 0 {
		code = strconv.Itoa(v.ExitCode)
	}
	if v.Verdict == "accepted" {
		colour = green
	}
	if v.Cut {
		last = "(cut) " + last
	}
	t.print(v.Program, v.Outcome, code, v.Verdict, colour, fmt.Sprintf("%.2f s", v.Seconds), size(v.Output), last)
}

// width is how wide the table may be; between is the room that all columns but the first and the last
// take, with the spaces around them.
const (
	width   = 100
	between = 14 + 4 + 13 + 6 + 8 + 11
)

// print prints one line. The program's name and what it printed are hostile: they are escaped.
func (t *table) print(program, outcome, code, verdict, colour, wall, output, last string) {
	line := fmt.Sprintf("%-*s  %-14s %4s  %s  %6s  %8s  %s", t.name, escape(program, t.name), outcome, code,
		t.paint(fmt.Sprintf("%-13s", verdict), colour), wall, output, escape(last, width-t.name-between))
	_, _ = fmt.Fprintln(t.out, strings.TrimRight(line, " "))
}

// The colours of a terminal.
const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

func (t *table) paint(s, colour string) string {
	if !t.colour || colour == "" {
		return s
	}
	return colour + s + "\x1b[0m"
}

// end prints the closing line.
func (t *table) end(programs int, sandboxes int64, took time.Duration, left []string) {
	remains := "nothing left behind"
	if len(left) > 0 {
		remains = "LEFT BEHIND: " + strings.Join(left, ", ")
	}
	closing := fmt.Sprintf("%d programs, %d sandboxes, %.1f s, %s", programs, sandboxes, took.Seconds(), remains)
	if t.json {
		fmt.Fprintln(os.Stderr, closing)
		return
	}
	_, _ = fmt.Fprintf(t.out, "\n%s\n", closing)
}

// escape makes s harmless for a terminal and at most width columns wide. It leaves ASCII only: that every
// character is one column wide holds for nothing else.
func escape(s string, width int) string {
	q := strconv.QuoteToASCII(s)
	q = strings.ReplaceAll(q[1:len(q)-1], `\"`, `"`)
	if len(q) > width {
		q = q[:max(width-3, 0)] + "..."
	}
	return q
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}
