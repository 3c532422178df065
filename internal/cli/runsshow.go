package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
)

// showOptions are the options of `fumehood runs show`.
type showOptions struct {
	runs   string // the folder of runs
	sample string // show only this sample's attempts, in detail
	all    bool   // also show attempts that have passed
	json   bool
	how    runs.SummaryOptions
}

func (a *commandLine) newRunsShowCommand() *cobra.Command {
	var opts showOptions
	cmd := &cobra.Command{
		Use:   "show [RUN]",
		Short: "Show the results of a run",
		Long: `Show prints the summary of a run, by default the newest, and a table of the
attempts that have not passed: score, last step, outcome, seconds, and the
reason for the score. With --sample it prints everything recorded about one
sample, with the ends of the outputs.

--pass-at K adds pass@k: the probability that at least one of K attempts at a
sample passes, estimated from its epochs that have a score and averaged over the
samples that have K of them. --by prints the summary of each group of results
instead of the table: by sample, epoch, outcome (of the last step) or
metadata.KEY (of the sample).`,
		Example: `  fumehood runs show
  fumehood runs show 20261122-010203-judge-abcde --all
  fumehood runs show --sample sum/wrong.py
  fumehood runs show --by metadata.level --pass-at 1 --pass-at 5
  fumehood runs show --json | jq .pass_rate`,
		Args: atMostOneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.all && opts.sample != "" {
				return usageError("--all and --sample exclude each other")
			}
			if asked := opts.how.By != "" || len(opts.how.PassAt) > 0; asked && opts.sample != "" || opts.how.By != "" && opts.all {
				return usageError("--by excludes --all and --sample, --pass-at excludes --sample")
			}
			f, err := findRun(opts.runs, args)
			if err != nil {
				return err
			}
			return a.showRun(f, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.sample, "sample", "", "print everything recorded about the sample with this `id`")
	flags.BoolVar(&opts.all, "all", false, "also list the attempts that have passed")
	flags.BoolVar(&opts.json, "json", false, "print the summary as a JSON object, or with --sample its results as a JSON array")
	flags.StringVar(&opts.how.By, "by", "", "summarize groups of results by this `value`: sample, epoch, outcome or metadata.KEY")
	flags.IntSliceVar(&opts.how.PassAt, "pass-at", nil, "print pass@k for this `number` of attempts (repeatable)")
	a.addRunsFlag(flags, &opts.runs)
	return cmd
}

func (a *commandLine) showRun(f *runs.Folder, o showOptions) error {
	if o.sample != "" {
		return a.showSample(f, o)
	}
	s, err := f.Summarize(o.how)
	if err != nil {
		return err
	}
	if o.json {
		return a.printJSON(s)
	}
	if err := a.printSummary(f.Dir(), &s); err != nil {
		return err
	}
	if o.how.By != "" {
		return a.printGroups(&s)
	}
	var b strings.Builder
	var why []string
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SAMPLE\tSCORE\tSTEP\tEND\tWALL")
	for r, err := range f.Results() {
		if err != nil {
			return err
		}
		if r.Score == nil || !r.Score.Passed() || o.all {
			fmt.Fprintln(table, attemptName(&r)+"\t"+row(&r))
			why = append(why, whyNot(&r))
		}
	}
	if len(why) == 0 {
		return nil
	}
	if err := table.Flush(); err != nil {
		return err
	}
	head, rows, _ := strings.Cut(b.String(), "\n")
	if err := a.say("\n%s\n", head); err != nil {
		return err
	}
	i := 0
	for line := range strings.Lines(rows) {
		if _, err := io.WriteString(a.Out, line); err != nil {
			return err
		}
		if why[i] != "" {
			if err := a.say("    %s\n", cut(why[i], columns-4)); err != nil {
				return err
			}
		}
		i++
	}
	return nil
}

// printGroups prints a table with the groups of a summary. Pass rates and pass@k are in percent.
func (a *commandLine) printGroups(s *runs.Summary) error {
	if len(s.Groups) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	head := "GROUP\tRECORDED\tPASSED\tFAILED\tRATE\tMEAN"
	for _, p := range s.PassAt {
		head += fmt.Sprintf("\tPASS@%d", p.K)
	}
	fmt.Fprintln(table, "\n"+head)
	for _, g := range s.Groups {
		rate, mean := "-", "-"
		if g.PassRate != nil {
			rate, mean = percent(g.PassRate.Value)+" %", scoreOf(*g.Mean)
		}
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%s", cmp.Or(cut(printable(g.Value), 40), "-"), g.Recorded, g.Passed, g.Failed, rate, mean)
		for _, p := range g.PassAt {
			fmt.Fprint(table, "\t"+passAtOf(p))
		}
		fmt.Fprintln(table)
	}
	return table.Flush()
}

// passAtOf formats pass@k in percent.
func passAtOf(p runs.PassAt) string {
	if p.Value == nil {
		return "-"
	}
	return percent(*p.Value) + " %"
}

// row formats the columns of a result after its name.
func row(r *task.SampleResult) string {
	score, step, end, wall := "error", "-", "-", "-"
	if r.Score != nil {
		score = scoreOf(r.Score.Value)
	}
	if n := len(r.Steps); n > 0 {
		s := &r.Steps[n-1]
		step, end, wall = printable(s.Name), endOf(s), fmt.Sprintf("%.2f", s.Duration.Seconds())
	}
	return strings.Join([]string{score, step, end, wall}, "\t")
}

// whyNot returns on one line why an attempt has no better score, or "" if no reason is recorded.
func whyNot(r *task.SampleResult) string {
	switch {
	case r.Error != nil:
		return onLine(r.Error.Class + " in " + r.Error.Phase + ": " + r.Error.Text)
	case len(r.Score.Reasons) == 0:
		return ""
	}
	why := onLine(r.Score.Reasons[0])
	if n := len(r.Steps); n > 0 {
		why = strings.TrimPrefix(why, "step "+r.Steps[n-1].Name+": ") // the line above names the step
	}
	if n := len(r.Score.Reasons); n > 1 {
		why = fmt.Sprintf("%s (and %d more)", cut(why, columns-4-len(" (and 1000 more)")), n-1)
	}
	return why
}

// scoreOf formats a score with at most three decimals. It truncates, so that only a full score is 1.
func scoreOf(value float64) string {
	text := strconv.FormatFloat(value, 'f', -1, 64)
	if len(text) > len("0.123") {
		text = text[:len("0.123")]
	}
	return text
}

// endOf returns how a step ended, such as "exit 1" or "timed-out".
func endOf(s *task.StepResult) string {
	switch s.Outcome {
	case fumehood.Exited:
		return fmt.Sprintf("exit %d", s.ExitCode)
	case fumehood.Signaled:
		return fmt.Sprintf("signal %d", s.Signal)
	case fumehood.TimedOut, fumehood.CPUTimeExceeded, fumehood.OutOfMemory, fumehood.Lost:
	}
	return string(s.Outcome)
}

// showSample prints everything recorded about the attempts at a sample.
func (a *commandLine) showSample(f *runs.Folder, o showOptions) error {
	found := []task.SampleResult{}
	for r, err := range f.Results() {
		if err != nil {
			return err
		}
		if r.Sample == o.sample {
			found = append(found, r)
		}
	}
	if len(found) == 0 {
		return &fumehood.Error{Op: "show sample " + strconv.Quote(o.sample), Path: f.Dir(), Class: fumehood.ErrNotFound, Err: fmt.Errorf("no attempts are recorded")}
	}
	if o.json {
		return a.printJSON(found)
	}
	for i := range found {
		if err := a.showAttempt(&found[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *commandLine) showAttempt(r *task.SampleResult) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, epoch %d: ", printable(r.Sample), r.Epoch)
	if r.Error != nil {
		fmt.Fprintf(&b, "no score, %s in %s: %s\n", r.Error.Class, r.Error.Phase, inLines(r.Error.Text))
	} else {
		fmt.Fprintf(&b, "score %s\n", scoreOf(r.Score.Value))
		for _, name := range slices.Sorted(maps.Keys(r.Score.Parts)) {
			fmt.Fprintf(&b, "  %s: %s\n", printable(name), scoreOf(r.Score.Parts[name]))
		}
		for _, why := range r.Score.Reasons {
			fmt.Fprintf(&b, "  %s\n", inLines(why))
		}
	}
	fmt.Fprintf(&b, "  sandbox %s", r.Sandbox)
	if r.Tries > 1 {
		fmt.Fprintf(&b, ", the last of %d", r.Tries)
	}
	fmt.Fprintf(&b, "; begun %s\n", r.Started.Format("2006-01-02 15:04:05"))
	for i := range r.Steps {
		showStep(&b, "step "+printable(r.Steps[i].Name), &r.Steps[i])
	}
	if r.Grader != nil {
		showStep(&b, "grader", r.Grader)
	}
	_, err := io.WriteString(a.Out, b.String())
	return err
}

// showStep prints how a command ended, and the ends of its outputs.
func showStep(b *strings.Builder, name string, s *task.StepResult) {
	fmt.Fprintf(b, "%s: %s after %.2f s, %.2f s of CPU\n", name, endOf(s), s.Duration.Seconds(), (s.Usage.User + s.Usage.System).Seconds())
	for _, out := range []struct {
		name string
		fumehood.Output
	}{{"standard output", s.Stdout}, {"standard error", s.Stderr}} {
		if out.Total == 0 {
			continue
		}
		size := count(int(out.Total), "byte")
		if out.Truncated() {
			size += ", of which only the end was kept"
		}
		fmt.Fprintf(b, "  %s, %s:\n", out.name, size)
		for line := range strings.Lines(out.Text()) {
			fmt.Fprintf(b, "    %s\n", printableLine(strings.TrimSuffix(line, "\n")))
		}
	}
}

// printableLine returns a line of a program's output that is safe to print on a terminal.
func printableLine(line string) string {
	quoted := strconv.Quote(line)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "\t").Replace(quoted[1 : len(quoted)-1])
}

// onLine joins text into one line that is safe to print on a terminal.
func onLine(text string) string {
	return printableLine(strings.Join(strings.Fields(text), " "))
}

// inLines indents all lines of text but the first. The lines are safe to print on a terminal.
func inLines(text string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		lines = append(lines, printableLine(strings.TrimRight(line, "\n")))
	}
	return strings.Join(lines, "\n    ")
}

// cut shortens text to width characters, ending in "..." if something was removed.
func cut(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-3]) + "..."
}
