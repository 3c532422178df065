package task

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/session/spec"
)

// Kept describes a sandbox that was left in place.
type Kept struct {
	Sandbox  fumehood.Info
	Services []KeptService // the default service first
	Remove   []string      // the command that removes it
}

// KeptService describes a service of a kept sandbox.
type KeptService struct {
	Container string   // empty if none
	Enter     []string // the command that opens a shell in it; nil if none
}

// keptTimeout limits the time to find the connections of a sandbox.
const keptTimeout = 10 * time.Second

// describeKept describes a sandbox and its connections. Connections that cannot be found are omitted.
func describeKept(ctx context.Context, sb fumehood.Sandbox) Kept {
	ctx, cancel := context.WithTimeout(ctx, keptTimeout)
	defer cancel()
	info := sb.Info()
	k := Kept{Sandbox: info, Remove: []string{"fumehood", "cleanup", info.Name}}
	for _, s := range info.Services {
		service := KeptService{Container: s.Container}
		if svc, err := sb.Lookup(s.Name); err == nil {
			if conn, err := svc.Connection(ctx); err == nil {
				service.Enter = conn.Shell
			}
		}
		k.Services = append(k.Services, service)
	}
	return k
}

// tellKept calls Options.Kept with the sandboxes that were left in place.
func (t *Task) tellKept() {
	if !t.opts.Keep {
		return
	}
	order := map[string]int{}
	for i, s := range t.opts.Samples {
		order[s.ID] = i
	}
	t.mu.Lock()
	all := slices.Clone(t.kept)
	t.mu.Unlock()
	slices.SortStableFunc(all, func(a, b Kept) int {
		return cmp.Or(order[KeyOf(a.Sandbox).Sample]-order[KeyOf(b.Sandbox).Sample], KeyOf(a.Sandbox).Epoch-KeyOf(b.Sandbox).Epoch)
	})
	t.opts.Kept(all)
}

// WriteKept writes a table for display: the sample and epoch of each sandbox and the command that removes it, and
// for each of its containers the command that opens a shell.
func WriteKept(w io.Writer, all []Kept) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SAMPLE\tEPOCH\tCONTAINER\tENTER\tREMOVE")
	for _, k := range all {
		key := KeyOf(k.Sandbox)
		sample, epoch, remove := printable(key.Sample), strconv.Itoa(key.Epoch), spec.QuoteAll(k.Remove)
		for _, s := range k.Services {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", sample, epoch, cmp.Or(s.Container, "-"), cmp.Or(spec.QuoteAll(s.Enter), "-"), remove)
			sample, epoch, remove = "", "", ""
		}
	}
	return table.Flush()
}

// printable returns text unchanged, or quoted if it would break a table.
func printable(text string) string {
	if quoted := strconv.Quote(text); quoted != `"`+text+`"` {
		return quoted
	}
	return text
}
