package conformance

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

var updatePromises = flag.Bool("update-promises", false,
	"rewrite the column of docs/promises.md that the test runs (with -p 1, so that no two tests write it at once)")

// module is the first line of the go.mod that docs/promises.md is beside.
const module = "module github.com/fumehood/fumehood\n"

// recording is held while docs/promises.md is read and written: columns may run at the same time.
var recording sync.Mutex

// record logs the column and checks, or rewrites, docs/promises.md. In another module, where a provider
// of somebody else is tested, there is no such file and nothing to check.
func record(t *testing.T, column string, all []promise, cells map[string]string, whole bool) {
	t.Helper()
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	if testing.Verbose() { // else it would bury what has failed
		t.Logf("what was checked (%d of %d promises held or proved an exception):\n%s", len(cells), len(all),
			table{}.with(column, names, cells, true))
	}
	recording.Lock()
	defer recording.Unlock()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if root == "" {
		return
	}
	file := filepath.Join(root, "docs", "promises.md")
	doc, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, tb, foot, err := parseTable(string(doc))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	whole = whole && !t.Failed()
	if *updatePromises {
		updated := head + tb.with(column, names, cells, whole).String() + foot
		if err := os.WriteFile(file, []byte(updated), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	diff := tb.differences(column, names, cells, whole)
	for _, d := range diff {
		t.Errorf("docs/promises.md, column %q: %s", column, d)
	}
	if len(diff) > 0 {
		t.Error("run the test with -update-promises, and -p 1, to write down what ran")
	}
}

// moduleRoot is the folder of this module's go.mod at or above the test's, empty where the test is of
// another module.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil {
			if bytes.HasPrefix(bytes.ReplaceAll(mod, []byte("\r\n"), []byte("\n")), []byte(module)) {
				return dir, nil
			}
			return "", nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", nil
		}
		dir = up
	}
}
