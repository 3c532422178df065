package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/eval"
	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/eval/task"
)

// addRunsFlag adds the flag for the folder of runs.
func (a *commandLine) addRunsFlag(flags *pflag.FlagSet, dir *string) {
	flags.StringVar(dir, "runs", eval.DefaultRuns, "the `folder` of runs")
	markSettings(flags, "runs")
}

// runDir returns the folder of a run, which is given as a path or as a name in the folder of runs, dir.
func runDir(dir, run string) string {
	if filepath.Base(run) != run || run == "." || run == ".." {
		return run
	}
	return filepath.Join(dir, run)
}

func (a *commandLine) newRunsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, show and export runs of evaluations",
		Long: `Runs reads what "fumehood eval" has recorded, even while it is running. A RUN is
the name of a folder in the folder of runs, or a path.`,
		Example: `  fumehood runs list
  fumehood runs show
  fumehood runs export 20261122-010203-judge-abcde --format junit >results.xml`,
	}
	cmd.AddCommand(a.newRunsListCommand(), a.newRunsShowCommand(), a.newRunsExportCommand())
	return cmd
}

func (a *commandLine) newRunsListCommand() *cobra.Command {
	var dir string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, newest first",
		Long: `List prints the runs: their names and tasks, whether they are finished, running
or interrupted, how many of their attempts are recorded, the pass rate of those
with a score, and the time from the run's creation to its last result. Canceled
attempts do not count as recorded: "fumehood eval --resume" makes them again.`,
		Example: "  fumehood runs list\n  fumehood runs list --json",
		Args:    noArguments,
		RunE: func(*cobra.Command, []string) error {
			return a.listRuns(dir, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	a.addRunsFlag(cmd.Flags(), &dir)
	return cmd
}

func (a *commandLine) listRuns(dir string, asJSON bool) error {
	entries, bad := runs.List(dir)
	if asJSON {
		all := make([]api.Run, len(entries))
		for i, e := range entries {
			all[i] = api.RunOf(e)
		}
		return errors.Join(a.printJSON(all), bad)
	}
	if len(entries) == 0 && bad != nil {
		return bad
	}
	if len(entries) == 0 {
		return a.say("no runs in %s\n", dir)
	}
	w := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tTASK\tSTATE\tRECORDED\tPASSED\tDURATION")
	for _, e := range entries {
		passed := "-"
		if e.PassRate != nil {
			passed = percent(e.PassRate.Value) + " %"
		}
		about := e.About()
		fmt.Fprintf(w, "%s\t%s\t%s\t%d of %d\t%s\t%s\n", printable(filepath.Base(e.Dir())), cut(printable(about.Task), 40), e.State(), e.Recorded, about.Attempts, passed, e.Duration.Round(time.Second))
	}
	return errors.Join(w.Flush(), bad)
}

// findRun returns the named run, or the newest one if none is named.
func findRun(dir string, args []string) (*runs.Folder, error) {
	if len(args) > 0 {
		return runs.Read(runDir(dir, args[0]))
	}
	entries, err := runs.List(dir)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, &fumehood.Error{Op: "find the newest run", Path: dir, Class: fumehood.ErrConfig, Err: errors.New("no runs found"), Hint: "set the folder of runs with --runs"}
	}
	return entries[0].Folder, nil
}

func atMostOneRun(cmd *cobra.Command, args []string) error {
	if len(args) < 2 {
		return nil
	}
	return wantArguments("RUN")(cmd, args)
}

func (a *commandLine) newRunsExportCommand() *cobra.Command {
	var dir, format, file string
	cmd := &cobra.Command{
		Use:   "export [RUN]",
		Short: "Write a run's results as CSV, JUnit XML or JSON",
		Long: `Export writes the results of a run, by default the newest. CSV has a line for
each attempt. JSON is an object with the summary and all results. In JUnit XML,
which build servers show, a score below 1 is a failure.`,
		Example: `  fumehood runs export --format csv >results.csv
  fumehood runs export 20261122-010203-judge-abcde --format junit -o results.xml`,
		Args: atMostOneRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{runs.CSV, runs.JUnit, runs.JSON}, format) {
				return usageError("--format %q is not csv, junit or json", format)
			}
			f, err := findRun(dir, args)
			if err != nil {
				return err
			}
			if file == "" {
				out := forPeople(a.Out)
				return errors.Join(f.Export(out, format), out.Close())
			}
			return exportTo(file, f, format)
		},
	}
	cmd.Flags().StringVar(&format, "format", "", "the `format`: csv, junit or json")
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to this `file` (default: standard output)")
	a.addRunsFlag(cmd.Flags(), &dir)
	return cmd
}

func exportTo(file string, f *runs.Folder, format string) (err error) {
	w, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return f.Export(w, format)
}

// printSummary prints the summary of a run as text.
func (a *commandLine) printSummary(dir string, s *runs.Summary) error {
	var b strings.Builder
	line := func(text string) { b.WriteString(wrap(text, 4) + "\n") }
	scored := s.Passed + s.Failed
	recorded := fmt.Sprintf("%d of %s", s.Recorded, count(s.Attempts, "attempt"))
	if s.Recorded == s.Attempts {
		recorded = count(s.Attempts, "attempt")
	}
	text := fmt.Sprintf("%s: %s, %d passed, %d failed", s.Task, recorded, s.Passed, s.Failed)
	if n := s.Recorded - scored; n > 0 {
		text += fmt.Sprintf(", %d without a score (%s)", n, counts(s.Errors))
	}
	if s.Retried > 0 {
		text += fmt.Sprintf(", %d repeated", s.Retried)
	}
	line(text)
	if r := s.PassRate; r != nil {
		line(fmt.Sprintf("pass rate: %s %% (95 %% confidence: %s to %s %%), mean score %.3f", percent(r.Value), percent(r.Low), percent(r.High), *s.Mean))
	}
	if all := s.PassRateAll; all != nil && all.Of > scored {
		line(fmt.Sprintf("pass rate with those without a score: %s %% of %s", percent(all.Value), count(all.Of, "attempt")))
	}
	for _, p := range s.PassAt {
		line(fmt.Sprintf("pass@%d: %s, over %s", p.K, passAtOf(p), count(p.Samples, "sample")))
	}
	if scored > 0 {
		line("last steps: " + counts(s.Outcomes))
	}
	if text := shares(s.Phases); text != "" {
		line("time: " + text)
	}
	line("run: " + dir)
	_, err := io.WriteString(a.Out, b.String())
	return err
}

// percent formats a part of 1 in percent. It returns 100.0 only for 1 and 0.0 only for 0.
func percent(part float64) string {
	p := math.Round(part*1000) / 10
	switch {
	case p >= 100 && part < 1:
		p = 99.9
	case p <= 0 && part > 0:
		p = 0.1
	}
	return fmt.Sprintf("%.1f", p)
}

// counts formats how many there are of each name, most frequent first.
func counts(numbers map[string]int) string {
	names := slices.SortedFunc(maps.Keys(numbers), func(x, y string) int { return cmp.Or(numbers[y]-numbers[x], strings.Compare(x, y)) })
	for i, name := range names {
		names[i] = fmt.Sprintf("%d %s", numbers[name], name)
	}
	return strings.Join(names, ", ")
}

// shares formats the share of time of each phase, in the order of phases.
func shares(phases map[string]runs.Phase) string {
	var parts []string
	for _, phase := range []string{"acquire", "setup", "solve", "score", "remove"} {
		if p, ok := phases[phase]; ok {
			parts = append(parts, fmt.Sprintf("%s %.0f %%", phase, 100*p.Share))
		}
	}
	return strings.Join(parts, ", ")
}

// count formats a number of things with the right plural.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// attemptName returns the name of an attempt: its sample, and its epoch unless that is the first.
func attemptName(r *task.SampleResult) string {
	if r.Epoch == 1 {
		return printable(r.Sample)
	}
	return fmt.Sprintf("%s [%d]", printable(r.Sample), r.Epoch)
}
