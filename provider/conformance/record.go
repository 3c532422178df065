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
	"rewrite the column of docs/promises.md that the test runs (use with -p 1, so that only one test writes it at a time)")

// module is the first line of go.mod in the module that has docs/promises.md.
const module = "module github.com/fumehood/fumehood\n"

// recording is held while docs/promises.md is read and written, because columns may run at the same time.
var recording sync.Mutex

// record logs the column, and checks or rewrites docs/promises.md. Another module that tests its own provider has no
// such file. There record only logs the column.
func record(t *testing.T, column string, all []promise, cells map[string]string, whole bool) {
	t.Helper()
	names := make([]string, len(all))
	for i, p := range all {
		names[i] = p.name
	}
	if testing.Verbose() { // otherwise the table would hide the failures
		t.Logf("%d of %d promises held or proved an exception:\n%s", len(cells), len(all),
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
		t.Error("docs/promises.md differs from this run: to update it, run the test with -update-promises and -p 1")
	}
}

// moduleRoot returns the folder of this module's go.mod, which is the test's folder or one above. It returns "" if the
// test belongs to another module.
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
