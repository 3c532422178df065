package main

import (
	"context"
	"os/exec"
	"path/filepath"

	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/provider/native"
)

// runsc is the name of gVisor's runtime.
const runsc = "runsc"

// startsOnly are the start, the first command and the removal of another contender. Under gVisor the other rows would
// take minutes, and show gVisor's speed alone.
type startsOnly struct{ contender }

func (s startsOnly) start(ctx context.Context) (box, error) {
	b, err := s.contender.start(ctx)
	return &startsOnlyBox{box: b}, err
}

type startsOnlyBox struct {
	box
	ran bool
}

func (b *startsOnlyBox) exec(ctx context.Context, args ...string) (int64, error) {
	if b.ran {
		return 0, errNotMeasured
	}
	b.ran = true
	return b.box.exec(ctx, args...)
}

func (*startsOnlyBox) write(context.Context, string, []byte) error { return errNotMeasured }

func (*startsOnlyBox) read(context.Context, string, int64) error { return errNotMeasured }

// newRunsc returns the two providers with gVisor: native if runsc is in bin, where scripts/ensure-runsc builds it, or
// in the PATH; docker if the Engine has a runtime of this name. missing lists what there is not.
func newRunsc(ctx context.Context, api *client.Client, image string) (all []contender, missing []string, err error) {
	program, err := filepath.Abs(filepath.Join("bin", runsc))
	if err == nil {
		if _, err = exec.LookPath(program); err != nil {
			program, err = exec.LookPath(runsc)
		}
	}
	if err != nil {
		missing = append(missing, byNativeRunsc+": left out: "+err.Error())
	} else {
		p, err := native.New(ctx, native.Options{Runtime: program})
		if err != nil {
			return nil, nil, err
		}
		all = append(all, startsOnly{ours(byNativeRunsc, p, image)})
	}
	info, err := api.Info(ctx, client.InfoOptions{})
	if err != nil {
		return all, nil, err
	}
	if _, ok := info.Info.Runtimes[runsc]; !ok {
		return all, append(missing, byDockerRunsc+": left out: the Engine has no runtime runsc"), nil
	}
	other, err := newOurs(ctx, byDockerRunsc, image, docker.Options{Runtime: runsc})
	if err != nil {
		return all, nil, err
	}
	return append(all, startsOnly{other}), missing, nil
}
