// Demo compares a run of examples/judge with the verdicts that its samples name. `make demo` runs it.
//
// usage: demo TASK RUN
package main

import (
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/fumehood/fumehood/eval/runs"
	"github.com/fumehood/fumehood/examples/internal/verdicts"
	"github.com/fumehood/fumehood/internal/taskfile"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: demo TASK RUN")
	}
	file, err := taskfile.Read(os.Args[1], taskfile.ReadOptions{})
	if err != nil {
		log.Fatal(err)
	}
	run, err := runs.Read(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	count, differences, err := verdicts.Compare(file.Samples, run.Results())
	if err != nil {
		log.Fatal(err)
	}
	all := len(file.Samples)
	var kinds []string
	for _, verdict := range slices.Sorted(maps.Keys(count)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", count[verdict], verdict))
	}
	fmt.Printf("%d of %d verdicts as expected: %s\n", all-len(differences), all, strings.Join(kinds, ", "))
	if len(differences) > 0 {
		log.Fatal(strings.Join(differences, "\n"))
	}
}
