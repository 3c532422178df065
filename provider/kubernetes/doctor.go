package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
)

// Diagnose checks the configuration, the cluster's version, the rights in the namespace, and, with a guest's image, starts a
// sandbox of that image. It reports each check when it is done. It returns false if a check failed. It leaves nothing behind.
func Diagnose(ctx context.Context, opts Options, report func(provider.Check)) bool {
	ok := true
	tell := func(c provider.Check) {
		ok = ok && c.Status != provider.StatusFail
		report(c)
	}
	opts.Logger = nil
	p, err := New(ctx, opts)
	if err != nil {
		tell(provider.FailedCheck("configuration", err))
		return false
	}
	defer func() {
		if err := p.Close(ctx); err != nil {
			tell(provider.FailedCheck("cleanup", err))
		}
	}()
	tell(provider.Check{Name: "configuration", Status: provider.StatusOK, Detail: fmt.Sprintf("%s, namespace %s", p.api.config.Host, p.api.namespace)})
	for _, check := range []func(context.Context) provider.Check{p.versionCheck, p.rightsCheck, p.sandboxCheck} {
		c := check(ctx)
		tell(c)
		if c.Status == provider.StatusFail {
			break // the next ones need it
		}
	}
	return ok
}

// oldestMinor is the oldest version of Kubernetes, 1.31: before it, exec streams do not report that their input has ended.
const oldestMinor = 31

func (p *Provider) versionCheck(ctx context.Context) provider.Check {
	ctx, cancel := call(ctx)
	defer cancel()
	raw, err := p.api.rest.Get().AbsPath("/version").DoRaw(ctx)
	if err != nil {
		return provider.FailedCheck("cluster", explain(err))
	}
	var v struct{ Major, Minor, GitVersion, Platform string }
	if err := json.Unmarshal(raw, &v); err != nil {
		return provider.FailedCheck("cluster", fmt.Errorf("the answer about its version: %w", err))
	}
	c := provider.Check{Name: "cluster", Status: provider.StatusOK, Detail: fmt.Sprintf("Kubernetes %s, %s", v.GitVersion, v.Platform)}
	if minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+")); err == nil && v.Major == "1" && minor < oldestMinor {
		c.Status, c.Hint = provider.StatusFail, fmt.Sprintf("upgrade it to 1.%d or newer", oldestMinor)
	}
	return c
}

func (p *Provider) rightsCheck(ctx context.Context) provider.Check {
	missing, err := p.api.missingRights(ctx)
	switch {
	case err != nil:
		return provider.FailedCheck("rights", err)
	case len(missing) > 0:
		return provider.Check{
			Name: "rights", Status: provider.StatusFail, Detail: "this account may not " + strings.Join(missing, ", "),
			Hint: "give it the Role that `fumehood doctor --provider kubernetes --print-rbac` prints",
		}
	}
	return provider.Check{Name: "rights", Status: provider.StatusOK, Detail: "all that is needed in the namespace"}
}

// sandboxCheck starts a sandbox of the guest's own image, so that it needs no other, and looks for a network in it.
func (p *Provider) sandboxCheck(ctx context.Context) provider.Check {
	const name = "sandbox"
	if p.opts.GuestImage == "" {
		return provider.Check{
			Name: name, Status: provider.StatusNote, Detail: "not started: no image of the guest is given",
			Hint: "push one with `fumehood image guest --push REF`, and name it with --guest-image",
		}
	}
	begin := time.Now()
	sb, err := p.Start(ctx, fumehood.Spec{Image: p.opts.GuestImage, Limits: fumehood.Limits{Memory: initMemory}})
	if err != nil {
		return provider.FailedCheck(name, err)
	}
	started := time.Since(begin)
	begin = time.Now()
	res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{guestPath, "selftest"}, Timeout: guestWithin})
	ran := time.Since(begin)
	if err == nil && !strings.Contains(res.Stdout.Text(), syscall.ENETUNREACH.Error()) {
		err = errors.New("it is not without a network: " + strings.ReplaceAll(strings.TrimSpace(res.Stdout.Text()), "\n", "; "))
	}
	begin = time.Now()
	if err := errors.Join(err, sb.Close(ctx)); err != nil {
		return provider.FailedCheck(name, err)
	}
	return provider.Check{
		Name: name, Status: provider.StatusOK,
		Detail: fmt.Sprintf("started in %d ms, a command in %d ms, removed in %d ms; it reaches no network", started.Milliseconds(), ran.Milliseconds(), time.Since(begin).Milliseconds()),
	}
}
