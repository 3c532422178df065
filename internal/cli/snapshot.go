package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/app"
	"github.com/fumehood/fumehood/session/spec"
	"github.com/fumehood/fumehood/session/workspace"
)

func (a *commandLine) newSnapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Create, restore and compare snapshots of folders",
		Long: `Snapshot stores a folder as one file, a tar archive: the same tree gives the
same file. Snapshots are not trusted and are checked when they are read. These
commands need no daemon.`,
		Example: `  fumehood snapshot create work -o work.tar.gz
  fumehood snapshot diff work.tar.gz work
  fumehood snapshot restore work.tar.gz again`,
	}
	cmd.AddCommand(a.newSnapshotCreateCommand(), a.newSnapshotRestoreCommand(), a.newSnapshotDiffCommand(), a.newSnapshotShowCommand())
	return cmd
}

// wantArguments returns the argument check of commands that take exactly the named arguments.
func wantArguments(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		command, wanted := strings.TrimPrefix(cmd.CommandPath(), "fumehood "), strings.Join(names, " and ")
		switch {
		case len(args) < len(names):
			return usageError("%s needs %s", command, wanted)
		case len(args) > len(names):
			return usageError("%s takes %s, but %q was given too", command, wanted, args[len(names)])
		}
		return nil
	}
}

// globFlags declares the flags that select files of a folder.
func globFlags(cmd *cobra.Command, opts *workspace.CreateOptions) {
	cmd.Flags().StringArrayVar(&opts.Keep, "keep", nil, "include only what matches this `glob` (repeatable)")
	cmd.Flags().StringArrayVar(&opts.Ignore, "ignore", nil, "exclude what matches this `glob`, even if --keep matches it (repeatable)")
}

// limitFlags are the limits of a snapshot, as typed.
type limitFlags struct {
	size, stored string
	entries      int
}

func (f *limitFlags) add(flags *pflag.FlagSet) {
	f.addTree(flags, "")
	flags.StringVar(&f.stored, "max-stored", "", "maximum `size` of the stored data before compression (default: as --max-size)")
}

// addTree declares the flags that bound a tree, as opposed to how it is stored. when begins their help.
func (f *limitFlags) addTree(flags *pflag.FlagSet, when string) {
	flags.StringVar(&f.size, "max-size", "", when+"maximum `size` of all files including holes, such as 20GiB, or none (default 10GiB)")
	flags.IntVar(&f.entries, "max-entries", 0, when+"maximum `number` of files, folders and links (default 1000000)")
}

// limits checks the flags and returns the limits. Zero fields mean the defaults.
func (f *limitFlags) limits() (l workspace.Limits, err error) {
	for _, limit := range []struct {
		flag, text string
		to         *int64
	}{{"max-size", f.size, &l.Bytes}, {"max-stored", f.stored, &l.Stored}} {
		if limit.text == "" {
			continue
		}
		if *limit.to, err = spec.ParseSize(limit.text); err != nil {
			return l, usageError("--%s %w", limit.flag, err)
		}
		if *limit.to == 0 {
			return l, usageError("--%s %q is not above 0", limit.flag, limit.text)
		}
	}
	if f.entries < 0 {
		return l, usageError("--max-entries %d is negative", f.entries)
	}
	l.Entries = f.entries
	return l, nil
}

func (a *commandLine) newSnapshotCreateCommand() *cobra.Command {
	var opts workspace.CreateOptions
	var file, compression string
	var limits limitFlags
	cmd := &cobra.Command{
		Use:   "create DIR",
		Short: "Write a snapshot of a folder to a file",
		Long: `Create writes the files, folders and symbolic links of a folder to a file. Links
are never followed. Permissions and times (to the second) are kept, owners are
not. Pipes, sockets and devices are skipped and listed. On Linux, large holes of
sparse files stay holes.

Globs match paths relative to the folder: *.pyc in the folder itself, **/*.pyc
anywhere in it. A matching folder includes everything in it.`,
		Example: `  fumehood snapshot create work -o work.tar.gz
  fumehood snapshot create . -o ../src.tar.zst --compression zst --ignore .git
  fumehood snapshot create work -o py.tar --compression none --keep '**/*.py'`,
		Args: wantArguments("DIR"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if file == "" {
				return usageError("snapshot create needs -o FILE")
			}
			if opts.Limits, err = limits.limits(); err != nil {
				return err
			}
			opts.Compression = workspace.Compression(compression)
			if err := opts.Validate(); err != nil {
				return usageError("%w", err)
			}
			return a.createSnapshot(cmd.Context(), args[0], file, opts)
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "the `file` to write; an existing one is replaced")
	globFlags(cmd, &opts)
	cmd.Flags().StringVar(&compression, "compression", "gz", "the compression `format`: gz, xz, zst or none")
	limits.add(cmd.Flags())
	return cmd
}

func (a *commandLine) createSnapshot(ctx context.Context, dir, file string, opts workspace.CreateOptions) error {
	m, err := app.CreateSnapshot(ctx, dir, file, opts)
	if err != nil {
		return err
	}
	for _, s := range m.Skipped {
		a.tell("left out: %s is a %s", printable(s.Path), s.What)
	}
	return a.say("%s: %s\n", file, summary(m))
}

func (a *commandLine) say(format string, args ...any) error {
	_, err := fmt.Fprintf(a.Out, format, args...)
	return err
}

// summary describes a snapshot on one line: counts, size and hash.
func summary(m *workspace.Manifest) string {
	byType := map[workspace.Type]int{}
	for _, e := range m.Entries {
		byType[e.Type]++
	}
	return fmt.Sprintf("%s, %s, %s, %s, hash %s", count(byType[workspace.File], "file"), count(byType[workspace.Dir], "folder"),
		count(byType[workspace.Link], "link"), spec.FormatSize(m.Size()), m.Hash()[:12])
}

func (a *commandLine) newSnapshotRestoreCommand() *cobra.Command {
	var opts workspace.RestoreOptions
	var limits limitFlags
	cmd := &cobra.Command{
		Use:   "restore FILE DIR",
		Short: "Unpack a snapshot into a new or empty folder",
		Long: `Restore unpacks a snapshot into a folder that is empty or does not exist yet. A
snapshot with names or links that lead out of it, with devices or pipes, or over
a limit is rejected, and all its files are removed.`,
		Example: `  fumehood snapshot restore work.tar.gz again`,
		Args:    wantArguments("FILE", "DIR"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if opts.Limits, err = limits.limits(); err != nil {
				return err
			}
			return a.restoreSnapshot(cmd.Context(), args[0], args[1], opts)
		},
	}
	cmd.Flags().BoolVar(&opts.AnyLinks, "any-links", false, "restore links as they are, wherever they point")
	limits.add(cmd.Flags())
	return cmd
}

func (a *commandLine) restoreSnapshot(ctx context.Context, file, dir string, opts workspace.RestoreOptions) error {
	f, err := os.Open(file)
	if err != nil {
		return &fumehood.Error{Op: "read snapshot", Class: fumehood.ErrConfig, Err: err}
	}
	defer f.Close()
	m, err := workspace.Restore(ctx, f, dir, opts)
	if err != nil {
		return err
	}
	return a.say("%s: %s\n", dir, summary(m))
}

func (a *commandLine) newSnapshotDiffCommand() *cobra.Command {
	var opts workspace.CreateOptions
	var asJSON bool
	var limits limitFlags
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Compare two snapshots or folders",
		Long: `Diff prints the changes from A to B, snapshot files or folders, as a patch in
git's format. Times are not compared. Lines that start with # describe what such
a patch cannot hold: folders, and files that are binary or larger than 1 MiB. On
a terminal, control characters are shown as escapes such as \x1b. The exit code
does not depend on whether there are changes.`,
		Example: `  fumehood snapshot diff before.tar.gz after.tar.gz
  fumehood snapshot diff before.tar.gz work --ignore .git | less
  fumehood snapshot diff before.tar.gz after.tar.gz --json`,
		Args: wantArguments("A", "B"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if opts.Limits, err = limits.limits(); err != nil {
				return err
			}
			if err := opts.Validate(); err != nil {
				return usageError("%w", err)
			}
			return a.diffSnapshots(cmd.Context(), args[0], args[1], opts, asJSON)
		},
	}
	globFlags(cmd, &opts)
	cmd.Flags().Lookup("keep").Usage = "in folders, " + cmd.Flags().Lookup("keep").Usage
	cmd.Flags().Lookup("ignore").Usage = "in folders, " + cmd.Flags().Lookup("ignore").Usage
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	limits.add(cmd.Flags())
	return cmd
}

func (a *commandLine) diffSnapshots(ctx context.Context, before, after string, opts workspace.CreateOptions, asJSON bool) error {
	var sources [2]workspace.Source
	for i, name := range []string{before, after} {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return &fumehood.Error{Op: "read snapshot", Class: fumehood.ErrConfig, Err: err}
		case info.IsDir():
			sources[i] = workspace.FromDir(name, opts)
		default:
			sources[i] = workspace.FromFile(name, opts.Limits)
		}
	}
	changes, err := workspace.Diff(ctx, sources[0], sources[1])
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(changes)
	}
	out := forPeople(a.Out)
	return errors.Join(workspace.WritePatch(out, changes), out.Close())
}

func (a *commandLine) printJSON(v any) error {
	return writeJSON(a.Out, v)
}

func (a *commandLine) newSnapshotShowCommand() *cobra.Command {
	var asJSON bool
	var limits limitFlags
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Print the contents and the hash of a snapshot",
		Long: `Show prints a snapshot's entries with mode, size, time and the beginning of the
content's SHA-256. The last line has the hash of the tree: of paths, modes,
contents and links, not of times and compression.`,
		Example: `  fumehood snapshot show work.tar.gz
  fumehood snapshot show work.tar.gz --json`,
		Args: wantArguments("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, err := limits.limits()
			if err != nil {
				return err
			}
			return a.showSnapshot(cmd.Context(), args[0], within, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	limits.add(cmd.Flags())
	return cmd
}

func (a *commandLine) showSnapshot(ctx context.Context, file string, within workspace.Limits, asJSON bool) error {
	m, err := workspace.FromFile(file, within).Manifest(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return a.printJSON(struct {
			Hash    string            `json:"hash"`
			Size    int64             `json:"size"`
			Entries []workspace.Entry `json:"entries"`
		}{m.Hash(), m.Size(), append([]workspace.Entry{}, m.Entries...)})
	}
	out := bufio.NewWriter(a.Out)
	for _, e := range m.Entries {
		fmt.Fprintln(out, entryLine(e))
	}
	fmt.Fprintln(out, summary(m))
	return out.Flush()
}

// entryLine formats an entry: mode, size, time, hash and name.
func entryLine(e workspace.Entry) string {
	at := "-"
	if !e.ModTime.IsZero() {
		at = e.ModTime.Format(time.DateTime)
	}
	size, sum, name := "-", "-", printable(e.Path)
	switch e.Type {
	case workspace.File:
		size, sum = strconv.FormatInt(e.Size, 10), e.SHA256[:12]
	case workspace.Dir:
		name += "/"
	case workspace.Link:
		name += " -> " + printable(e.Target)
	}
	return fmt.Sprintf("%s  %10s  %-19s  %-12s  %s", e.Mode, size, at, sum, name)
}

// printable returns an untrusted name, quoted if it has characters that are unsafe on a terminal or white space at
// either end.
func printable(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` || strings.TrimSpace(name) != name {
		return quoted
	}
	return name
}
