package runs

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

// TestRate uses the figures of R. G. Newcombe, "Two-sided confidence intervals for the single
// proportion", Statistics in Medicine 17, 1998, table I, method 3.
func TestRate(t *testing.T) {
	for _, c := range []struct {
		some, all int
		low, high float64
	}{
		{81, 263, 0.2553, 0.3662}, {15, 148, 0.0624, 0.1605}, {0, 20, 0, 0.1611}, {1, 29, 0.0061, 0.1718}, {20, 20, 0.8389, 1},
	} {
		r := rate(c.some, c.all)
		if math.Abs(r.Low-c.low) > 0.00005 || math.Abs(r.High-c.high) > 0.00005 || r.Of != c.all || r.Value != float64(c.some)/float64(c.all) {
			t.Errorf("%d of %d: got %+v, want %v to %v", c.some, c.all, r, c.low, c.high)
		}
	}
}

func outputOf(text string) fumehood.Output {
	return fumehood.Output{Bytes: []byte(text), Total: int64(len(text))}
}

// mixed has results of every kind.
func mixed() []task.SampleResult {
	passed, slow, crashed, broken := scored("a,b", 1, 1), scored("a,b", 2, 0.5), scored("=1+1", 1, 0), failedWith("c", task.Infra)
	passed.Steps = []task.StepResult{{Name: "build", Result: fumehood.Result{Outcome: fumehood.Exited, ExitCode: 1}}, {Name: "run", Result: fumehood.Result{
		Outcome: fumehood.Exited, Duration: 250 * time.Millisecond, Usage: fumehood.Usage{User: 100 * time.Millisecond, System: 25 * time.Millisecond}, Stdout: outputOf("not told"),
	}}}
	passed.Phases = map[string]float64{"acquire": 1, "solve": 3}
	passed.Score.Parts = map[string]float64{"style": 1}
	slow.Steps = []task.StepResult{{Name: "1", Result: fumehood.Result{Outcome: fumehood.TimedOut, ExitCode: -1}}}
	slow.Score.Reasons = []string{"too slow", "and \"long\"\n]]>"}
	slow.Score.Parts = map[string]float64{"style": 0.5}
	slow.Phases = map[string]float64{"acquire": 2, "solve": 2}
	slow.Tries = 2
	crashed.Steps = []task.StepResult{{Name: "1", Result: fumehood.Result{
		Outcome: fumehood.Signaled, ExitCode: 139, Signal: 11, Stdout: outputOf("<out>\x1b[31m"), Stderr: outputOf("err"),
	}}}
	broken.Error.Text = "the daemon\nis gone"
	return []task.SampleResult{passed, slow, crashed, broken, scored("none", 1, 0)}
}

func TestFolder_Summary(t *testing.T) {
	r := create(t)
	if s, err := r.Summary(); err != nil || s.PassRate != nil || s.Mean != nil || s.Recorded != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	appendAll(t, r, mixed()...)
	s, err := r.Finish()
	if err != nil {
		t.Fatal(err)
	}
	want := Summary{
		Run: "run", Task: "sums", Created: created, Attempts: 10_000, Recorded: 5, Passed: 1, Failed: 3, Retried: 2, Duration: 4,
		Errors: map[string]int{task.Infra: 1}, Outcomes: map[string]int{"exited": 1, "timed-out": 1, "signaled": 1, "none": 1},
		PassRate: s.PassRate, PassRateAll: s.PassRateAll, Mean: s.Mean, Parts: map[string]float64{"style": 0.75},
		Phases: map[string]Phase{"acquire": {3, 0.375, 2, 2}, "solve": {5, 0.625, 3, 3}},
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %+v\nnot %+v", s, want)
	}
	if s.PassRate.Value != 0.25 || s.PassRate.Of != 4 || *s.Mean != 0.375 {
		t.Errorf("got %+v, %v", s.PassRate, *s.Mean)
	}
	if s.PassRateAll.Value != 0.2 || s.PassRateAll.Of != 5 {
		t.Errorf("PassRateAll is %+v", s.PassRateAll)
	}
	text, err := os.ReadFile(filepath.Join(r.Dir(), summaryFile))
	var read Summary
	if err := errors.Join(err, json.Unmarshal(text, &read)); err != nil || !reflect.DeepEqual(read, s) {
		t.Errorf("%s, %v", text, err)
	}
	if again := reopen(t, r); again != nil {
		if _, err := os.Stat(filepath.Join(r.Dir(), summaryFile)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("an unfinished run has a summary file: %v", err)
		}
	}
}

// Scores are decimal numbers. Neither their order nor their number rounds the mean.
func TestSummary_mean(t *testing.T) {
	r := create(t)
	for i, value := range []float64{0.1, 0.2, 0.3} {
		res := scored("a", i+1, value)
		res.Score.Parts = map[string]float64{"style": value}
		appendAll(t, r, res)
	}
	if s, err := r.Summary(); err != nil || *s.Mean != 0.2 || s.Parts["style"] != 0.2 {
		t.Errorf("got %v and %v, %v", *s.Mean, s.Parts, err)
	}
}

func export(t *testing.T, format string) string {
	t.Helper()
	r := create(t)
	appendAll(t, r, mixed()...)
	var out strings.Builder
	if err := r.Export(&out, format); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestExport_CSV(t *testing.T) {
	table, err := csv.NewReader(strings.NewReader(export(t, CSV))).ReadAll()
	if err != nil || len(table) != 6 {
		t.Fatalf("%d rows, %v", len(table), err)
	}
	var got []string
	for _, cells := range table {
		got = append(got, strings.Join(slices.Delete(cells, 14, 15), "|"))
	}
	want := []string{
		"sample|epoch|result|score|tries|outcome|exit_code|signal|duration|cpu|error_class|error_phase|text|sandbox|seconds_acquire|seconds_setup|seconds_solve|seconds_score|seconds_remove",
		"a,b|1|passed|1|1|exited|0|0|0.25|0.125|||||1|0|3|0|0",
		"a,b|2|failed|0.5|2|timed-out|-1|0|0|0|||too slow\nand \"long\"\n]]>||2|0|2|0|0",
		"'=1+1|1|failed|0|1|signaled|139|11|0|0|||||0|0|0|0|0",
		"c|1|error||3||||||infrastructure|solve|the daemon\nis gone||0|0|0|0|0",
		"none|1|failed|0|1||||||||||0|0|0|0|0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCell(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a=1": "a=1", "=1": "'=1", "+1": "'+1", "-1": "'-1", "@A": "'@A", "  =1": "'  =1", "\t=1": "'\t=1", "\n=1": "'\n=1", "＝1": "'＝1", "＠A": "'＠A", "ä": "ä",
	} {
		if got := cell(text); got != want {
			t.Errorf("cell(%q) is %q, want %q", text, got, want)
		}
	}
}

func TestExport_JSON(t *testing.T) {
	var got struct {
		Summary Summary
		Results []task.SampleResult
	}
	if err := json.Unmarshal([]byte(export(t, JSON)), &got); err != nil || got.Summary.Recorded != 5 {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := mixed(); !reflect.DeepEqual(got.Results, want) {
		t.Errorf("got %+v\nnot %+v", got.Results, want)
	}
}

func TestExport_JUnit(t *testing.T) {
	text := export(t, JUnit)
	var suite struct {
		XMLName  xml.Name   `xml:"testsuite"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Errors   int        `xml:"errors,attr"`
		Time     string     `xml:"time,attr"`
		Cases    []testcase `xml:"testcase"`
		Rates    []property `xml:"properties>property"`
	}
	if err := xml.Unmarshal([]byte(text), &suite); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if rates := []property{{"pass_rate", "0.25"}, {"pass_rate_all", "0.2"}}; !slices.Equal(suite.Rates, rates) {
		t.Errorf("got %v", suite.Rates)
	}
	var got []string
	for _, c := range suite.Cases {
		s := c.Class + "|" + c.Name + "|" + c.Time
		for _, x := range []*trouble{c.Failure, c.Error} {
			if x != nil {
				s += fmt.Sprintf("|%s|%s|%s", x.Type, x.Message, x.Text)
			}
		}
		got = append(got, s+"|"+c.SystemOut+"|"+c.SystemErr)
	}
	want := []string{
		"sums|a,b [1]|4||",
		"sums|a,b [2]|4|score|too slow|too slow\nand \"long\"\n]]>||",
		"sums|=1+1 [1]|0|score|score 0|" + "|<out>\ufffd[31m|err",
		"sums|c [1]|0|infrastructure|solve: the daemon|the daemon\nis gone||",
		"sums|none [1]|0|score|score 0|||",
	}
	if !slices.Equal(got, want) || suite.Tests != 5 || suite.Failures != 3 || suite.Errors != 1 || suite.Name != "sums" || suite.Time != "8" {
		t.Errorf("got\n%s\nwant\n%s\nin\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"), text)
	}
}

func TestExport_unknownFormat(t *testing.T) {
	if err := create(t).Export(&bytes.Buffer{}, "xls"); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "use csv, json or junit") {
		t.Errorf("got %v", err)
	}
}

// shut is a writer that always fails.
type shut struct{}

func (shut) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestExport_writeFails(t *testing.T) {
	r := create(t)
	appendAll(t, r, mixed()...)
	for _, format := range []string{CSV, JSON, JUnit} {
		if err := r.Export(shut{}, format); !errors.Is(err, fumehood.ErrInfrastructure) || !strings.Contains(err.Error(), "broken pipe") {
			t.Errorf("%s: %v", format, err)
		}
	}
}

func TestList(t *testing.T) {
	dir := t.TempDir()
	if all, err := List(filepath.Join(dir, "none")); err != nil || all != nil {
		t.Errorf("%v, %v", all, err)
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "other"), 0o755), os.WriteFile(filepath.Join(dir, "file"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"old", "finished", "new"} {
		r, err := Create(filepath.Join(dir, name), About{Task: name, Attempts: 3, Created: created.Add(time.Duration(i) * time.Hour)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for n := range i {
			appendAll(t, r, scored("a", n+1, 1))
		}
		if name == "finished" {
			if _, err := r.Finish(); err != nil {
				t.Error(err)
			}
		}
		if name != "new" {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		defer r.Close()
	}
	for i, name := range []string{aboutFile, resultsFile} { // an invalid run does not hide the others
		bad := filepath.Join(dir, fmt.Sprintf("bad-%d", i))
		r, err := Create(bad, About{Task: "bad", Attempts: 1, Created: created}, nil)
		if err == nil {
			err = errors.Join(r.Close(), os.Remove(filepath.Join(bad, name)), os.Mkdir(filepath.Join(bad, name), 0o700))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := List(dir)
	if err == nil || !strings.Contains(err.Error(), "bad-0") || !strings.Contains(err.Error(), "bad-1") {
		t.Errorf("with two unreadable runs: %v", err)
	}
	var got []string
	for _, e := range all {
		got = append(got, fmt.Sprintf("%s %s %d of %d, finished %v, live %v", filepath.Base(e.Dir()), e.About().Task, e.Recorded, e.About().Attempts, e.Finished, e.Live))
	}
	want := []string{"new new 2 of 3, finished false, live true", "finished finished 1 of 3, finished true, live false", "old old 0 of 3, finished false, live false"}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestNewName(t *testing.T) {
	a, b := NewName("My Sums/../é", created), NewName("My Sums/../é", created)
	if !strings.HasPrefix(a, "20260102-030405-My-Sums") || strings.ContainsAny(a, "/. é") || a == b {
		t.Errorf("got %s and %s", a, b)
	}
}

// TestSummary_sums checks that sums of floating point do not depend on the order in which Go goes through a map.
func TestSummary_sums(t *testing.T) {
	r := &task.SampleResult{
		Sample: "a", Score: &task.Score{Value: 1},
		Phases: map[string]float64{"acquire": 0.1, "setup": 0.2, "solve": 0.3, "score": 1e-17},
	}
	texts := map[string]bool{}
	for range 100 {
		sums := newTally(SummaryOptions{})
		sums.add(r)
		text, err := json.Marshal(sums.summarize())
		if err != nil {
			t.Fatal(err)
		}
		texts[string(text)] = true
	}
	if len(texts) != 1 {
		t.Errorf("got %d summaries of one result", len(texts))
	}
}
