package runs

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/internal/score"
)

// Summary summarizes a run's results.
type Summary struct {
	Run      string    `json:"run"`  // name of the folder
	Task     string    `json:"task"` // name of the task
	Created  time.Time `json:"created"`
	Attempts int       `json:"attempts"` // planned attempts
	Recorded int       `json:"recorded"`

	Passed int `json:"passed"` // with a score of 1
	Failed int `json:"failed"` // with a score below 1
	// Errors counts the attempts without a score by class. With Passed and Failed, they add up to Recorded.
	Errors map[string]int `json:"errors"`
	// Outcomes counts the attempts with a score by the outcome of their last step; "none" if there was no step.
	Outcomes map[string]int `json:"outcomes"`
	Retried  int            `json:"retried"` // attempts that used more than one sandbox
	// Duration is the time from the creation of the run to the end of its last recorded attempt, in seconds. It
	// includes the time before a resume.
	Duration float64 `json:"duration"`

	PassRate *Rate `json:"pass_rate,omitempty"` // of the attempts with a score; nil if there are none
	// PassRateAll is the rate of all recorded attempts, except canceled ones. Attempts without a score count as not
	// passed. It is nil if there are none. A program that prevents its own scoring can raise PassRate, but not
	// PassRateAll.
	PassRateAll *Rate `json:"pass_rate_all,omitempty"`

	Mean  *float64           `json:"mean_score,omitempty"` // of the attempts with a score; nil if there are none
	Parts map[string]float64 `json:"parts,omitempty"`      // mean of each named score, over the attempts that have it

	// Phases are the times spent, by the names in SampleResult.Phases.
	Phases map[string]Phase `json:"phases"`

	// PassAt and Groups are set by Summarize alone, as its options ask.
	PassAt []PassAt `json:"pass_at,omitempty"`
	Groups []Group  `json:"groups,omitempty"`
}

// Rate is a proportion of attempts.
type Rate struct {
	Value float64 `json:"value"`
	// Low and High are the 95 % confidence interval by Wilson's score method (E. B. Wilson, "Probable inference,
	// the law of succession, and statistical inference", J. Am. Stat. Assoc. 22, 1927, p. 209-212). It assumes
	// independent attempts, which epochs of one sample are not quite.
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	Of   int     `json:"of"` // number of attempts
}

// Phase is the time that attempts spent in a phase, in seconds.
type Phase struct {
	Total  float64 `json:"total"`
	Share  float64 `json:"share"` // of the total of all phases, from 0 to 1
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// rate returns the proportion of some in all.
func rate(some, all int) Rate {
	const z = 1.959963984540054 // the standard normal distribution's 97.5 % quantile
	n := float64(all)
	p := float64(some) / n
	middle := p + z*z/(2*n)
	half := z * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	whole := 1 + z*z/n
	return Rate{Value: p, Low: max(0, (middle-half)/whole), High: min(1, (middle+half)/whole), Of: all}
}

// Summary summarizes the results recorded so far.
func (f *Folder) Summary() (Summary, error) { return f.summary(f.size(), SummaryOptions{}) }

func (f *Folder) summary(within int64, o SummaryOptions) (Summary, error) {
	if err := o.checkValues(f.dir); err != nil {
		return Summary{}, err
	}
	name := f.dir
	if abs, err := filepath.Abs(f.dir); err == nil {
		name = abs
	}
	t := newTally(o)
	t.Run, t.Task, t.Created, t.Attempts = filepath.Base(name), f.about.Task, f.about.Created, f.about.Attempts
	groups := map[string]*tally{}
	for l, err := range f.lines(within) {
		if err != nil {
			return Summary{}, err
		}
		t.add(&l.result)
		if o.By == "" {
			continue
		}
		value := o.groupOf(&l.result)
		if groups[value] == nil {
			if len(groups) == maxGroups {
				return Summary{}, &fumehood.Error{Op: "group results", Path: f.dir, Class: fumehood.ErrLimit, Err: fmt.Errorf("more than %d groups by %s", maxGroups, o.By)}
			}
			groups[value] = newTally(o)
		}
		groups[value].add(&l.result)
	}
	s := t.summarize()
	for _, value := range slices.Sorted(maps.Keys(groups)) {
		g := groups[value].summarize()
		s.Groups = append(s.Groups, Group{value, g.Recorded, g.Passed, g.Failed, g.Errors, g.PassRate, g.PassRateAll, g.Mean, g.PassAt})
	}
	return s, nil
}

// maxDuration bounds the duration of a run in seconds: its files may be from another person.
const maxDuration = 1e9

// tally is a summary in progress. It holds a few numbers of each result.
type tally struct {
	Summary
	scores score.Mean
	parts  map[string]*score.Mean
	times  map[string][]float64

	at      []int                // the numbers of attempts of PassAt
	samples map[string]*attempts // by sample, if there are such numbers
}

func newTally(o SummaryOptions) *tally {
	return &tally{
		Summary: Summary{Errors: map[string]int{}, Outcomes: map[string]int{}, Phases: map[string]Phase{}},
		parts:   map[string]*score.Mean{}, times: map[string][]float64{}, at: o.PassAt, samples: map[string]*attempts{},
	}
}

// inOrder yields the values of phases by name, so that the same run always has the same sums of floating point.
func inOrder[T any](phases map[string]T) iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		for _, phase := range slices.Sorted(maps.Keys(phases)) {
			if !yield(phase, phases[phase]) {
				return
			}
		}
	}
}

func (t *tally) add(r *task.SampleResult) {
	t.Recorded++
	if r.Tries > 1 {
		t.Retried++
	}
	ended := r.Started.Sub(t.Created).Seconds()
	for phase, seconds := range inOrder(r.Phases) {
		t.times[phase] = append(t.times[phase], seconds)
		ended += seconds
	}
	t.Duration = min(max(t.Duration, ended), maxDuration)
	if r.Error != nil {
		t.Errors[r.Error.Class]++
		return
	}
	if r.Score.Passed() {
		t.Passed++
	} else {
		t.Failed++
	}
	t.Outcomes[outcomeOf(r)]++
	if len(t.at) > 0 {
		if t.samples[r.Sample] == nil {
			t.samples[r.Sample] = &attempts{}
		}
		t.samples[r.Sample].add(r.Score.Passed())
	}
	t.scores.Add(r.Score.Value)
	for name, value := range r.Score.Parts {
		if t.parts[name] == nil {
			t.parts[name] = &score.Mean{}
		}
		t.parts[name].Add(value)
	}
}

func (t *tally) summarize() Summary {
	if scored := t.Passed + t.Failed; scored > 0 {
		r, m := rate(t.Passed, scored), t.scores.Value()
		t.PassRate, t.Mean = &r, &m
	}
	if all := t.Recorded - t.Errors[task.Canceled]; all > 0 {
		r := rate(t.Passed, all)
		t.PassRateAll = &r
	}
	for _, k := range t.at {
		t.PassAt = append(t.PassAt, passAt(k, t.samples))
	}
	if len(t.parts) > 0 {
		t.Parts = map[string]float64{}
	}
	for name, p := range t.parts {
		t.Parts[name] = p.Value()
	}
	all := 0.0
	for phase, times := range inOrder(t.times) {
		slices.Sort(times)
		p := Phase{Median: times[len(times)/2], Max: times[len(times)-1]}
		for _, seconds := range times {
			p.Total += seconds
		}
		all += p.Total
		t.Phases[phase] = p
	}
	for phase, p := range t.Phases {
		if all > 0 {
			p.Share = p.Total / all
		}
		t.Phases[phase] = p
	}
	return t.Summary
}
