package conformance

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

var updatePromises = flag.Bool("update-promises", false,
	"rewrite the column of docs/promises.json that the test runs, and docs/promises.md (use with -p 1, so that only one test writes them at a time)")

// module is the first line of go.mod in the module that has docs/promises.json.
const module = "module github.com/fumehood/fumehood\n"

// recording is held while docs/promises.json is read and written, because columns may run at the same time.
var recording sync.Mutex

// record logs the column, and checks or rewrites docs/promises.json. Another module that tests its own provider has no
// such file. There record only logs the column.
func record(t *testing.T, column string, names []string, cells map[string]string, whole bool) {
	t.Helper()
	if testing.Verbose() { // otherwise the cells would hide the failures
		text, err := matrix{}.with(column, names, cells, true).json()
		t.Logf("%d of %d promises held or proved an exception:\n%s", len(cells), len(names), text)
		if err != nil {
			t.Error(err)
		}
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
	m, err := readMatrix(root)
	if err != nil {
		t.Fatal(err)
	}
	whole = whole && !t.Failed()
	if *updatePromises {
		if err := m.with(column, names, cells, whole).write(root); err != nil {
			t.Fatal(err)
		}
		return
	}
	diff := m.differences(column, names, cells, whole)
	for _, d := range diff {
		t.Errorf("%s, column %q: %s", matrixFile, column, d)
	}
	if len(diff) > 0 {
		t.Errorf("%s differs from this run: to update it, run the test with -update-promises and -p 1", matrixFile)
	}
}

// matrixFile and pageFile are paths in the module's root.
const (
	matrixFile = "docs/promises.json"
	pageFile   = "docs/promises.md"
)

func readMatrix(root string) (matrix, error) {
	text, err := os.ReadFile(filepath.Join(root, matrixFile))
	if err != nil {
		return nil, err
	}
	m, err := parseMatrix(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", matrixFile, err)
	}
	return m, nil
}

// write writes the matrix and its page.
func (m matrix) write(root string) error {
	text, err := m.json()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, matrixFile), text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(root, pageFile), []byte(m.page()), 0o644)
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
