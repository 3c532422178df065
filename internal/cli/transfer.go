package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/fumehood/fumehood/internal/app"
)

// addLinksAsText declares the flag for links in what is copied out.
func addLinksAsText(flags *pflag.FlagSet, to *bool) {
	flags.BoolVar(to, "links-as-text", false, "when copying out, write links that may lead out as files with their target (default: an error)")
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
