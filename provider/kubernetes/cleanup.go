package kubernetes

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fumehood/fumehood/internal/box"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/owner/reaper"
	"github.com/fumehood/fumehood/internal/owner/sweep"
	"github.com/fumehood/fumehood/provider"
)

// claimsKind is the kind of the folder where processes claim that they live.
const claimsKind = "owners"

// Cleanup deletes the Pods of dead owners, expired ones, and those of the sandboxes that the options name. Whether an owner
// on another machine lives is not known, so its Pods stay until their lease has passed.
func (p *Provider) Cleanup(ctx context.Context, opts provider.CleanupOptions) ([]provider.Leftover, error) {
	return sweep.Removal{AtOnce: box.AtOnce}.Run(ctx, opts, p.api.finder(p.self, managed))
}

// finder returns what lists the Pods of a selector for a cleanup.
func (a *api) finder(self owner.ID, labels string) sweep.Find {
	return func(ctx context.Context) ([]sweep.Object, sweep.Facts, error) {
		pods, _, err := a.list(ctx, labels, "")
		if err != nil {
			return nil, sweep.Facts{}, err
		}
		var all []sweep.Object
		for i := range pods {
			all = append(all, a.object(&pods[i]))
		}
		dir, _ := owner.StateDir(claimsKind) // without a folder there are no claims
		now := time.Now()
		return all, sweep.Facts{Owners: sweep.Judge(self, all, owner.Claims(dir, self, now), now), Now: now}, nil
	}
}

// object describes a Pod for a cleanup. One without valid marks has an unknown owner.
func (a *api) object(pod *corev1.Pod) sweep.Object {
	marks := marksOf(pod)
	lease, _ := time.Parse(time.RFC3339, marks[owner.LabelLease]) // zero on an error
	o := sweep.Object{
		Kind: "pod", Name: pod.Name, Sandbox: marks[owner.LabelSandbox], Owner: marks[owner.LabelOwner], Kept: marks[owner.LabelKept] == "true",
		Created: pod.CreationTimestamp.Time, Lease: lease, Remove: func(ctx context.Context) error { return a.endPod(ctx, pod.Name, pod.UID) },
	}
	if o.Kept {
		o.Expires = marks.Expires()
	}
	return o
}

// reaping is the job of a reaper: to delete the Pods that its owner left.
type reaping struct {
	Kubeconfig string `json:"kubeconfig,omitempty"` // as in Options
	Context    string `json:"context,omitempty"`
	Namespace  string `json:"namespace,omitempty"`
}

// reaperKind is the kind of this provider's jobs.
var reaperKind = reaper.Kind[reaping]("kubernetes")

// RunReaper runs the reaper if this process is one, and returns immediately otherwise. Call it at the beginning of main. It
// serves all providers that the program imports.
func RunReaper() { reaper.Run() }

const (
	// reapPause is the pause between two lists, reapSettle how long they must find nothing before the reaper ends: the API
	// server may still carry out a request that the owner sent just before its end.
	reapPause  = time.Second
	reapSettle = 8 * time.Second
)

// Do deletes everything that the dead owner left, except for kept sandboxes. It tries until ctx ends.
func (r reaping) Do(ctx context.Context, self, dead owner.ID) error {
	a, err := connect(Options{Kubeconfig: r.Kubeconfig, Context: r.Context, Namespace: r.Namespace})
	if err != nil {
		return err
	}
	find := a.finder(self, managed+","+labelOwner+"="+ownerLabel(dead))
	for quiet := time.Now(); ; {
		plan, err := sweep.Removal{AtOnce: box.AtOnce}.Run(ctx, provider.CleanupOptions{}, find)
		for _, l := range plan {
			if l.Removed {
				quiet = time.Now()
			}
		}
		if err == nil && time.Since(quiet) > reapSettle {
			return nil
		}
		select {
		case <-time.After(reapPause):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}
