package runs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/score"
)

const (
	maxGroups = 100_000
	maxPassAt = 100 // numbers of attempts in SummaryOptions.PassAt
)

// SummaryOptions are the options of Summarize. The zero value asks for what Summary returns.
type SummaryOptions struct {
	// PassAt are numbers of attempts, each at least 1, for Summary.PassAt and Group.PassAt. There may be 100.
	PassAt []int
	// By is the value that results are grouped by, for Summary.Groups: "sample", "epoch", "outcome" (of the last step; "none"
	// without a step), or "metadata.KEY". Empty means no groups.
	By string
}

// PassAt is pass@k: the probability that at least one of K attempts at a sample passes. It is estimated without bias from
// N attempts of which C passed, as 1 - C(N-C, K) / C(N, K) (M. Chen et al., "Evaluating large language models trained on
// code", 2021), and averaged over samples. Attempts without a score do not count.
type PassAt struct {
	K       int      `json:"k"`
	Value   *float64 `json:"value,omitempty"` // from 0 to 1; nil if no sample has K attempts with a score
	Samples int      `json:"samples"`         // samples with at least K attempts with a score, which alone count
}

// Group summarizes the results that have one value. See Summary for its fields.
type Group struct {
	Value       string         `json:"value"` // of what the results are grouped by; empty if they have none
	Recorded    int            `json:"recorded"`
	Passed      int            `json:"passed"`
	Failed      int            `json:"failed"`
	Errors      map[string]int `json:"errors"`
	PassRate    *Rate          `json:"pass_rate,omitempty"`
	PassRateAll *Rate          `json:"pass_rate_all,omitempty"`
	Mean        *float64       `json:"mean_score,omitempty"`
	PassAt      []PassAt       `json:"pass_at,omitempty"`
}

// Summarize summarizes the results recorded so far, with pass@k and in groups. Invalid options are an ErrConfig, more than
// 100,000 groups an ErrLimit.
func (f *Folder) Summarize(o SummaryOptions) (Summary, error) { return f.summary(f.size(), o) }

func (o SummaryOptions) checkValues(dir string) error {
	wrong := func(err error, hint string) error {
		return &fumehood.Error{Op: "summarize run", Path: dir, Class: fumehood.ErrConfig, Err: err, Hint: hint}
	}
	if len(o.PassAt) > maxPassAt {
		return wrong(fmt.Errorf("pass@k for more than %d numbers of attempts", maxPassAt), "")
	}
	for _, k := range o.PassAt {
		if k < 1 {
			return wrong(fmt.Errorf("pass@k of %d attempts", k), "use a number of at least 1")
		}
	}
	switch key, metadata := strings.CutPrefix(o.By, "metadata."); {
	case metadata && key != "", o.By == "", o.By == "sample", o.By == "epoch", o.By == "outcome":
		return nil
	}
	return wrong(errors.New("unknown value to group by: "+strconv.Quote(o.By)), "use sample, epoch, outcome or metadata.KEY")
}

// groupOf returns the value of a result that it is grouped by.
func (o SummaryOptions) groupOf(r *task.SampleResult) string {
	switch o.By {
	case "sample":
		return r.Sample
	case "epoch":
		return strconv.Itoa(r.Epoch)
	case "outcome":
		return outcomeOf(r)
	}
	return r.Metadata[strings.TrimPrefix(o.By, "metadata.")]
}

// outcomeOf returns the outcome of the last step, or "none" if there is no step.
func outcomeOf(r *task.SampleResult) string {
	if s := lastStep(r); s != nil {
		return string(s.Outcome)
	}
	return "none"
}

// attempts counts the attempts at a sample that have a score.
type attempts struct{ all, passed int }

func (a *attempts) add(passed bool) {
	a.all++
	if passed {
		a.passed++
	}
}

// atLeastOne estimates the probability that at least one of k attempts passes, of which there are at least k.
func (a *attempts) atLeastOne(k int) float64 {
	if a.all-a.passed < k {
		return 1
	}
	none := 1.0
	for i := a.all - a.passed + 1; i <= a.all; i++ {
		none *= 1 - float64(k)/float64(i)
	}
	return 1 - none
}

func passAt(k int, samples map[string]*attempts) PassAt {
	var mean score.Mean // its order does not matter
	p := PassAt{K: k}
	for _, a := range samples {
		if a.all >= k {
			mean.Add(a.atLeastOne(k))
			p.Samples++
		}
	}
	if p.Samples > 0 {
		p.Value = new(mean.Value())
	}
	return p
}
