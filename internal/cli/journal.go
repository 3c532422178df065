package cli

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood/journal"
)

// journalFlag is the file that a journal is appended to. Empty means no journal.
type journalFlag string

func (f *journalFlag) add(flags *pflag.FlagSet) {
	flags.StringVar((*string)(f), "journal", "", "append a record of the sandbox's activity to a `file` (docs/journal.md)")
	markSettings(flags, "journal")
}

// openJournal opens the journal and returns its logger and closer. The logger is nil if file is empty.
func (a *commandLine) openJournal(file journalFlag) (*slog.Logger, io.Closer, error) {
	if file == "" {
		return nil, io.NopCloser(nil), nil
	}
	f, err := os.OpenFile(string(file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, nil, usageError("--journal: %w", err)
	}
	return journal.New(f, a.log).Logger, unwritten{f, a}, nil
}

// unwritten is a journal's file. Its Close logs errors instead of returning them, as for all failed journal writes.
type unwritten struct {
	*os.File
	a *commandLine
}

func (u unwritten) Close() error {
	if err := u.File.Close(); err != nil {
		u.a.log.Warn(fmt.Sprintf("the journal may not be complete: %v", err))
	}
	return nil
}
