package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
	"time"
)

// promise is a limit that the project guarantees.
type promise struct {
	row       string
	contender string  // the contender that keeps it; empty for the first one
	to        string  // the contender to compare with; empty for a limit in milliseconds
	atMost    float64 // of the ratio of the medians, or of our median
	more      float64 // in milliseconds, of the difference of the medians, instead of atMost; 0 for none
	floor     string  // the row that shows what the machine itself needs for it; empty for none
}

// promises are checked below the table.
func promises() []promise {
	return []promise{
		{row: coldStart, to: byEngine, atMost: 1},
		{row: execTrue, to: byEngine, atMost: 1. / 40},
		{row: execTrue, atMost: 1.5, floor: shellRow},
		{row: crowdRow, atMost: crowdRuns, floor: shellsRow}, // 1,000 commands a second
		{row: echoRow, atMost: 2},                            // the first byte of a stream arrives even sooner
		{row: writeRow, to: byCLI, atMost: 1. / 2},
		{row: readRow, to: byCLI, atMost: 1. / 2},
		{row: coldStart, contender: byNative, to: byEngine, atMost: 1. / 25},
		{row: coldStart, contender: byNative, atMost: 10},
		{row: coldStart, contender: byNative, to: byCrun, atMost: 1. / 3},
		{row: coldStart, contender: byNativeRunsc, to: byDockerRunsc, atMost: 1 / 1.5},
		{row: execTrue, contender: byNative, to: byFumehood, atMost: 1},
		{row: removal, contender: byNative, atMost: 2},
		{row: samplesRow, contender: byNative, to: byFumehood, atMost: 1. / 5},
		{row: startsRow, contender: byNative, to: byFumehood, atMost: 1. / 8},
		{row: writeRow, contender: byNative, to: byPlain, atMost: 1.3},
		{row: readRow, contender: byNative, to: byPlain, atMost: 1.3},
		{row: idleProject, to: byEngine, atMost: 1.2},
		{row: probeProject, to: bySDK, atMost: 1. / 3},
		{row: samplesRow, to: byEngine, atMost: 1 / 0.9}, // 90 % of its throughput
		{row: warmRow, atMost: 5},
		{row: runRow, contender: byCommand, to: byCLI, atMost: 1},
		{row: runsRow, contender: byCommand, to: byCLI, atMost: 1},
		{row: execTrue, contender: byCommand, atMost: 25},
		{row: writeRow, contender: byCommand, to: byCLI, atMost: 1},
		{row: readRow, contender: byCommand, to: byCLI, atMost: 1},
		{row: psRow, contender: byCommand, atMost: 24},
		{row: psManyRow, contender: byCommand, atMost: 40},
		{row: helpRow, contender: byCommand, atMost: 15},
		{row: versionRow, contender: byCommand, atMost: 15},
		{row: execTrue, contender: byPython, to: byFumehood, more: 0.4},
		{row: execTrue, contender: byPython, to: byCLI, atMost: 1. / 30},
		{row: crowdRow, contender: byPython, to: byFumehood, atMost: 1 / 0.6}, // 60 % of its rate
		{row: writeRow, contender: byPython, to: byCLI, atMost: 1. / 2},
		{row: readRow, contender: byPython, to: byCLI, atMost: 1. / 2},
		{row: coldResult, contender: byPython, to: byCLI, atMost: 1},
		{row: warmResult, contender: byPython, atMost: 60},
	}
}

func (p promise) String() string {
	row := p.row
	if p.contender != "" {
		row += " by the " + p.contender
	}
	switch {
	case p.more > 0:
		return fmt.Sprintf("%s: at most %.4g ms more than the %s's", row, p.more, p.to)
	case p.to == "":
		return fmt.Sprintf("%s: at most %.4g ms", row, p.atMost)
	}
	return fmt.Sprintf("%s: at most %.3g of the %s's", row, p.atMost, p.to)
}

// kept reports whether own, compared with other, are within the limit.
func (p promise) kept(own, other []time.Duration) bool {
	switch {
	case p.more > 0:
		return median(own)-median(other) <= time.Duration(p.more*float64(time.Millisecond))
	case p.to == "":
		return median(own) <= time.Duration(p.atMost*float64(time.Millisecond))
	}
	return ratio(own, other) <= p.atMost
}

// report is the result of a run.
type report struct {
	facts      facts
	rows       []string
	contenders []string // the first one is compared with the others
	missing    []string
	shares     string // of the phases of samples; empty if none were run
	samples    map[key][]time.Duration
	memory     *memory // nil if it was not measured
	footprints []footprint
	file       string
}

func (r report) print(w io.Writer) {
	f := r.facts
	p := func(format string, a ...any) { _, _ = fmt.Fprintf(w, format+"\n", a...) }
	p("%s, revision %s, %s, %s", f.Date.Format(time.RFC3339), orNone(f.Revision), f.Go, f.Host)
	p("%d cores, %d MiB, kernel %s, Engine %s (%s, cgroups %s, %s), docker CLI %s, Python %s", f.Cores, f.MemoryMiB, f.Kernel,
		f.Engine, f.Storage, f.Cgroups, f.Runtime, orNone(f.CLI), orNone(f.Python))
	p("image %s, load %s before, %s after", f.Image, orNone(f.Load), orNone(f.LoadAfter))
	p("")
	r.table(w)
	p("")
	p("Times in milliseconds; p99 of fewer than 100 samples (n) is the longest. The ratios are of medians: below 1")
	p("%s is the faster one.", r.contenders[0])
	for _, m := range r.missing {
		p("%s", m)
	}
	if r.shares != "" {
		p("Where the time of %s went: %s.", samplesRow, r.shares)
	}
	p("")
	for _, pr := range promises() {
		p("%s", r.verdict(pr))
	}
	if r.memory != nil {
		p("promise: %v", r.memory)
	}
	for _, f := range r.footprints {
		p("%v", f)
	}
	p("samples: %s", r.file)
}

// cell is the width of a column with numbers.
const cell = 9

// table prints a line for each row: the times of every contender, then the ratio of the first one to each of the
// others.
func (r report) table(w io.Writer) {
	names := len("milliseconds")
	for _, row := range r.rows {
		names = max(names, len(row))
	}
	first, others := r.contenders[0], r.contenders[1:]
	above, heads := fmt.Sprintf("%-*s %4s", names, "", ""), fmt.Sprintf("%-*s %4s", names, "milliseconds", "n")
	for _, c := range r.contenders {
		above += fmt.Sprintf("%*s", 2*cell, c)
		heads += fmt.Sprintf("%*s%*s", cell, "p50", cell, "p99")
	}
	for i, c := range others {
		above += fmt.Sprintf("%*s", 2+len(c), []string{"ratio to", ""}[min(i, 1)])
		heads += "  " + c
	}
	_, _ = fmt.Fprintf(w, "%s\n%s\n", strings.TrimRight(above, " "), heads)
	for _, row := range r.rows {
		mine := r.samples[key{row, first}]
		line := fmt.Sprintf("%-*s %4d", names, row, len(mine))
		for _, c := range r.contenders {
			s := r.samples[key{row, c}]
			line += fmt.Sprintf("%*s%*s", cell, milliseconds(median(s)), cell, milliseconds(percentile(s, 99)))
		}
		for _, c := range others {
			line += fmt.Sprintf("%*s", 2+len(c), times(ratio(mine, r.samples[key{row, c}])))
		}
		_, _ = fmt.Fprintln(w, line)
	}
}

// milliseconds formats a duration with three significant digits.
func milliseconds(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case d == 0:
		return "-"
	case ms < 10:
		return fmt.Sprintf("%.2f", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f", ms)
	default:
		return fmt.Sprintf("%.0f", ms)
	}
}

// times formats a ratio for the table.
func times(ratio float64) string {
	switch {
	case math.IsNaN(ratio):
		return "-"
	case ratio < 0.1:
		return fmt.Sprintf("%.3f", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// samplesFor returns the samples that a promise is about; false if they were not measured.
func (r report) samplesFor(p promise) (own, other []time.Duration, ok bool) {
	own, other = r.samples[key{p.row, cmp.Or(p.contender, r.contenders[0])}], r.samples[key{p.row, p.to}]
	return own, other, len(own) > 0 && (p.to == "" || len(other) > 0)
}

// verdict returns a line that reports whether a promise is kept.
func (r report) verdict(p promise) string {
	own, other, ok := r.samplesFor(p)
	if !ok {
		return fmt.Sprintf("promise: %v: not measured", p)
	}
	got := milliseconds(median(own)) + " ms"
	switch {
	case p.more > 0:
		got = milliseconds(median(own)-median(other)) + " ms more"
	case p.to != "":
		low, high := ratioRange(own, other)
		got = fmt.Sprintf("%.3f (95 %% range %.3f to %.3f)", ratio(own, other), low, high)
	}
	if floor := median(r.samples[key{p.floor, r.contenders[0]}]); floor > 0 {
		got += fmt.Sprintf(" (%s: %s ms)", p.floor, milliseconds(floor))
	}
	return fmt.Sprintf("promise: %v: %s, n %d: %s", p, got, len(own), keptOrNot(p.kept(own, other)))
}

func keptOrNot(kept bool) string {
	if kept {
		return "KEPT"
	}
	return "NOT KEPT"
}

// countBroken returns the number of promises that were measured and are not kept.
func (r report) countBroken() (broken int) {
	if r.memory != nil && !r.memory.kept() {
		broken++
	}
	for _, p := range promises() {
		if own, other, ok := r.samplesFor(p); ok && !p.kept(own, other) {
			broken++
		}
	}
	return broken
}
