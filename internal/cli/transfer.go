package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood/internal/app"
)

// copyOutFlags are the flags about what is copied out, as typed.
type copyOutFlags struct {
	limits      limitFlags
	linksAsText bool
}

func (f *copyOutFlags) add(flags *pflag.FlagSet) {
	const when = "when copying out, "
	flags.BoolVar(&f.linksAsText, "links-as-text", false, when+"write links that may lead out as files with their target (default: an error)")
	f.limits.addTree(flags, when)
}

// apply checks the flags and sets the options of t that they stand for.
func (f *copyOutFlags) apply(t *app.Transfer) (err error) {
	t.LinksAsText = f.linksAsText
	t.Limits, err = f.limits.limits()
	return err
}

// parseTransfer parses HOST:SANDBOX (copy in) or :SANDBOX:HOST (copy out). out reports a copy out.
func parseTransfer(s string) (t app.Transfer, out bool, err error) {
	if rest, ok := strings.CutPrefix(s, ":"); ok {
		t.Sandbox, t.Host, ok = strings.Cut(rest, ":")
		if ok && t.Sandbox != "" && t.Host != "" {
			return t, true, nil
		}
	} else if host, sandbox, ok := cutHost(s); ok && host != "" && sandbox != "" {
		return app.Transfer{Host: host, Sandbox: sandbox}, false, nil
	}
	return t, false, fmt.Errorf("--cp %q is neither HOST:SANDBOX (copy in) nor :SANDBOX:HOST (copy out)", s)
}
