package runs

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
)

// The formats supported by Export.
const (
	CSV   = "csv"   // a header line, then a line for each attempt
	JSON  = "json"  // an object with the summary and all results
	JUnit = "junit" // JUnit XML; a score below 1 is a failure
)

// Export writes all results recorded before the call. An unknown format is an ErrConfig.
func (f *Folder) Export(w io.Writer, format string) error {
	write := map[string]func(io.Writer, int64) error{CSV: f.csv, JSON: f.json, JUnit: f.junit}[format]
	if write == nil {
		return &fumehood.Error{Op: "export run", Path: f.dir, Class: fumehood.ErrConfig, Err: fmt.Errorf("unknown format %q: use %s, %s or %s", format, CSV, JSON, JUnit)}
	}
	out := bufio.NewWriter(w)
	err := write(out, f.size())
	if err == nil {
		err = out.Flush()
	}
	if err != nil && fumehood.ClassOf(err) == nil {
		return &fumehood.Error{Op: "export run", Path: f.dir, Class: fumehood.ErrInfrastructure, Err: err}
	}
	return err
}

// The phases of attempts, in order.
var phases = []string{"acquire", "setup", "solve", "score", "remove"}

func (f *Folder) csv(w io.Writer, within int64) error {
	table := csv.NewWriter(w)
	head := []string{
		"sample", "epoch", "result", "score", "tries", "outcome", "exit_code", "signal", "duration", "cpu", "error_class", "error_phase",
		"text", "sandbox", "started",
	}
	for _, p := range phases {
		head = append(head, "seconds_"+p)
	}
	if err := table.Write(head); err != nil {
		return err
	}
	for l, err := range f.lines(within) {
		if err != nil {
			return err
		}
		if err := table.Write(row(&l.result)); err != nil {
			return err
		}
	}
	table.Flush()
	return table.Error()
}

// row returns the CSV line of a result. Unknown values are empty.
func row(r *task.SampleResult) []string {
	var value, text, class, phase, outcome, code, signal, wall, cpu string
	if s := r.Score; s != nil {
		value, text = decimal(s.Value), strings.Join(s.Reasons, "\n")
	}
	if e := r.Error; e != nil {
		class, phase, text = e.Class, e.Phase, e.Text
	}
	if s := lastStep(r); s != nil {
		outcome, code, signal, wall, cpu = string(s.Outcome), strconv.Itoa(s.ExitCode), strconv.Itoa(s.Signal), decimal(s.Duration.Seconds()), decimal((s.Usage.User + s.Usage.System).Seconds())
	}
	cells := []string{
		cell(r.Sample), strconv.Itoa(r.Epoch), verdict(r), value, strconv.Itoa(r.Tries), outcome, code, signal, wall, cpu, class, cell(phase),
		cell(text), cell(r.Sandbox), r.Started.Format(time.RFC3339Nano),
	}
	for _, p := range phases {
		cells = append(cells, decimal(r.Phases[p]))
	}
	return cells
}

// cell returns a text for a table. It prefixes an apostrophe if spreadsheets would take the text for a formula.
func cell(text string) string {
	if first, _ := utf8.DecodeRuneInString(strings.TrimLeft(text, " ")); strings.ContainsRune("=+-@\t\r\n＝＋－＠", first) {
		return "'" + text
	}
	return text
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// lastStep returns the last step, or nil if there are no steps.
func lastStep(r *task.SampleResult) *task.StepResult {
	if len(r.Steps) == 0 {
		return nil
	}
	return &r.Steps[len(r.Steps)-1]
}

// verdict returns "passed", "failed" or "error".
func verdict(r *task.SampleResult) string {
	switch {
	case r.Error != nil:
		return "error"
	case r.Score.Passed():
		return "passed"
	}
	return "failed"
}

func (f *Folder) json(w io.Writer, within int64) error {
	s, err := f.summary(within, SummaryOptions{})
	if err != nil {
		return err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "{\"summary\": %s,\n\"results\": [", text); err != nil {
		return err
	}
	comma := "\n"
	for l, err := range f.lines(within) {
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s%s", comma, l.raw[:len(l.raw)-1]); err != nil {
			return err
		}
		comma = ",\n"
	}
	_, err = io.WriteString(w, "\n]}\n")
	return err
}

// testcase is an attempt in JUnit XML. See https://github.com/testmoapp/junitxml for the elements that readers
// expect.
type testcase struct {
	XMLName   xml.Name `xml:"testcase"`
	Class     string   `xml:"classname,attr"`
	Name      string   `xml:"name,attr"`
	Time      string   `xml:"time,attr"` // seconds
	Failure   *trouble `xml:"failure"`
	Error     *trouble `xml:"error"`
	SystemOut string   `xml:"system-out,omitempty"`
	SystemErr string   `xml:"system-err,omitempty"`
}

type trouble struct {
	Type    string `xml:"type,attr"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

func (f *Folder) junit(w io.Writer, within int64) error {
	s, err := f.summary(within, SummaryOptions{})
	if err != nil {
		return err
	}
	failures, seconds := s.Failed, 0.0
	for _, p := range inOrder(s.Phases) {
		seconds += p.Total
	}
	attr := func(name, value string) xml.Attr { return xml.Attr{Name: xml.Name{Local: name}, Value: value} }
	suite := xml.StartElement{Name: xml.Name{Local: "testsuite"}, Attr: []xml.Attr{
		attr("name", f.about.Task), attr("tests", strconv.Itoa(s.Recorded)), attr("failures", strconv.Itoa(failures)),
		attr("errors", strconv.Itoa(s.Recorded-s.Passed-s.Failed)), attr("time", decimal(seconds)), attr("timestamp", s.Created.Format(time.RFC3339)),
	}}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	out := xml.NewEncoder(w)
	out.Indent("", "  ")
	if err := out.EncodeToken(suite); err != nil {
		return err
	}
	if err := out.Encode(propertiesOf(&s)); err != nil {
		return err
	}
	for l, err := range f.lines(within) {
		if err != nil {
			return err
		}
		if err := out.Encode(testcaseOf(f.about.Task, &l.result)); err != nil {
			return err
		}
	}
	if err := out.EncodeToken(suite.End()); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	_, err = io.WriteString(w, "\n")
	return err
}

// properties are the properties of a test suite.
type properties struct {
	XMLName xml.Name   `xml:"properties"`
	All     []property `xml:"property"`
}

type property struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

// propertiesOf returns the pass rates of a summary as properties.
func propertiesOf(s *Summary) (p properties) {
	for _, field := range []struct {
		name string
		rate *Rate
	}{{"pass_rate", s.PassRate}, {"pass_rate_all", s.PassRateAll}} {
		if field.rate != nil {
			p.All = append(p.All, property{field.name, decimal(field.rate.Value)})
		}
	}
	return p
}

// testcaseOf returns the test case of an attempt. If it has not passed, the output of its last step is included.
func testcaseOf(suite string, r *task.SampleResult) testcase {
	seconds := 0.0
	for _, p := range inOrder(r.Phases) {
		seconds += p
	}
	c := testcase{Class: suite, Name: fmt.Sprintf("%s [%d]", r.Sample, r.Epoch), Time: decimal(seconds)}
	switch {
	case r.Error != nil:
		first, _, _ := strings.Cut(r.Error.Text, "\n")
		c.Error = &trouble{r.Error.Class, r.Error.Phase + ": " + first, r.Error.Text}
	case !r.Score.Passed():
		reasons := strings.Join(r.Score.Reasons, "\n")
		first, _, _ := strings.Cut(cmp.Or(reasons, "score "+decimal(r.Score.Value)), "\n")
		c.Failure = &trouble{"score", first, reasons}
	default:
		return c
	}
	if s := lastStep(r); s != nil {
		c.SystemOut, c.SystemErr = s.Stdout.Text(), s.Stderr.Text()
	}
	return c
}
