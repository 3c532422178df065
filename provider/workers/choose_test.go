package workers

import (
	"slices"
	"testing"

	"github.com/fumehood/fumehood/api"
)

// A worker that has the image gets the sandboxes, until another one has so much more room that a pull is worth it.
func TestProvider_take(t *testing.T) {
	t.Parallel()
	has, lacks := &worker{name: "has"}, &worker{name: "lacks"}
	p := &Provider{}
	var got []string
	for range 10 {
		all := []*candidate{{lacks, api.Status{CPUs: 2, MemoryAvailable: 2}}, {has, api.Status{CPUs: 2, HasImage: true, MemoryAvailable: 1}}}
		got = append(got, p.take(&all).name)
		if len(all) != 1 {
			t.Fatalf("%d candidates are left", len(all))
		}
	}
	want := []string{"has", "has", "has", "has", "lacks", "has", "lacks", "has", "lacks", "has"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
