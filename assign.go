package fumehood

import "context"

// Assign says for what part of an evaluation a sandbox is that was started before that was known. Info and the lines of
// its journal from now on have it; the labels of what was made do not. It is called before the sandbox is used.
func (sb *Sandbox) Assign(sample Sample) {
	sb.mu.Lock()
	sb.info.Sample = sample
	sb.mu.Unlock()
	r := sb.recorder.Load()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.info.Sample = sample
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
