package fumehood

import (
	"context"
	"maps"
)

// Assign gives other labels to a sandbox that was started before it was known what it is for. Info and the lines of its journal
// have them from now on; what was made for it in an Engine doesn't. It is called before the sandbox is used. The labels are as
// Spec.Labels: else it is an ErrConfig.
func (sb *Sandbox) Assign(labels map[string]string) error {
	if err := checkLabels(labels); err != nil {
		return &Error{Op: "assign sandbox", Class: ErrConfig, Err: err}
	}
	labels = maps.Clone(labels)
	sb.mu.Lock()
	sb.info.Labels = labels
	sb.mu.Unlock()
	r := sb.recorder.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.Labels = labels
	return nil
}

// Checker is the capability of a Backend to notice that something has ended that ran when the sandbox was started.
type Checker interface {
	// Check returns an ErrUnavailable that says what has ended.
	Check(ctx context.Context) error
}

// Check reports whether a sandbox that was not used yet still is as it was started: its default service answers, and
// where its provider can tell (Checker), nothing of it has ended. What is not so is the error.
func (sb *Sandbox) Check(ctx context.Context) error {
	const op = "check sandbox"
	if err := sb.check(op, ""); err != nil {
		return err
	}
	if be, ok := sb.be.(Checker); ok {
		if err := be.Check(ctx); err != nil {
			return classify(ctx, err, op, "", "")
		}
	}
	_, err := sb.Service.be.Files(sb.Service.user).Stat(ctx, "/")
	return classify(ctx, err, op, sb.Service.info.Name, "/")
}
