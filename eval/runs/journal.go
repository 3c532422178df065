package runs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/fumehood/fumehood/internal/guest/archive"
)

// Journal yields the lines of the journal of a sandbox of the run, which docs/journal.md describes, as they are now. Results name
// the sandbox. An incomplete last line, which is still being written, is omitted.
func (f *Folder) Journal(sandbox string) iter.Seq2[json.RawMessage, error] {
	const op = "read journal"
	path := filepath.Join(f.path(journalsName), sandbox+".jsonl")
	return func(yield func(json.RawMessage, error) bool) {
		file, err := f.openJournal(sandbox)
		if err != nil {
			yield(nil, pathError(op, path, err))
			return
		}
		defer file.Close()
		in := bufio.NewReaderSize(file, 1<<16)
		for n := 1; ; n++ {
			raw, err := readLine(in)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, pathError(op, path, err))
				return
			}
			raw = bytes.TrimSuffix(raw, []byte("\n"))
			err = checkJSON(raw)
			if err == nil && !bytes.HasPrefix(raw, []byte("{")) {
				err = errors.New("it is not a JSON object")
			}
			if err != nil {
				yield(nil, wrong(op, path, fmt.Errorf("line %d: %w", n, err)))
				return
			}
			if !yield(raw, nil) {
				return
			}
		}
	}
}

// openJournal opens a journal, which no link may replace.
func (f *Folder) openJournal(sandbox string) (*os.File, error) {
	folder, err := os.OpenRoot(f.path(journalsName))
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	name := sandbox + ".jsonl"
	if name != filepath.Base(name) {
		return nil, fmt.Errorf("%w: %q is not the name of a sandbox", os.ErrNotExist, sandbox)
	}
	if info, err := folder.Lstat(name); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, os.ErrNotExist)
	}
	return archive.Regular(folder.OpenFile(name, os.O_RDONLY|archive.NonBlock, 0))
}
