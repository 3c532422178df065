package kubernetes

import (
	"context"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// watching keeps the current state of Pods: those of a selector.
type watching struct {
	api            *api
	labels, fields string
	log            *slog.Logger
	stop           context.CancelFunc
	ended          chan struct{}

	mu   sync.Mutex
	pods map[string]*watched // by name
}

// watched is the state of one Pod.
type watched struct {
	pod     *corev1.Pod // nil if it does not exist, or no longer
	changed chan struct{}
}

// Pauses after a watch that failed.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// newWatching starts a watch, which end ends.
func newWatching(ctx context.Context, a *api, labels, fields string, log *slog.Logger) *watching {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &watching{api: a, labels: labels, fields: fields, log: log, stop: stop, ended: make(chan struct{}), pods: map[string]*watched{}}
	go func() {
		defer close(w.ended)
		for pause := firstPause; ctx.Err() == nil; {
			began := time.Now()
			err := w.follow(ctx)
			if time.Since(began) > longestPause {
				pause = firstPause // it had worked
			}
			if (err != nil || time.Since(began) < firstPause) && ctx.Err() == nil { // servers end a watch after minutes
				w.log.Debug("the watch of Pods has failed", "error", err)
				select {
				case <-time.After(pause):
				case <-ctx.Done():
				}
				pause = min(2*pause, longestPause)
			}
		}
	}()
	return w
}

func (w *watching) end() {
	w.stop()
	<-w.ended
}

// follow lists the Pods, and then follows the changes until the server ends the watch.
func (w *watching) follow(ctx context.Context) error {
	all, version, err := w.api.list(ctx, w.labels, w.fields)
	if err != nil {
		return err
	}
	w.replace(all)
	events, err := w.api.watch(ctx, w.labels, w.fields, version)
	if err != nil {
		return err
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		switch {
		case e.Type == watch.Error: // usually the version is too old
			return apierrors.FromObject(e.Object)
		case ok && e.Type == watch.Deleted:
			w.set(pod.Name, nil)
		case ok && e.Type != watch.Bookmark:
			w.set(pod.Name, pod)
		}
	}
	return nil
}

// replace sets the state of all Pods.
func (w *watching) replace(all []corev1.Pod) {
	there := map[string]*corev1.Pod{}
	for i := range all {
		there[all[i].Name] = &all[i]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, s := range w.pods {
		if there[name] == nil {
			s.set(nil)
		}
	}
	for name, pod := range there {
		w.entry(name).set(pod)
	}
}

func (w *watching) set(name string, pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if pod != nil || w.pods[name] != nil { // otherwise it is forgotten
		w.entry(name).set(pod)
	}
}

// entry returns the state of a Pod. The caller holds w.mu.
func (w *watching) entry(name string) *watched {
	s := w.pods[name]
	if s == nil {
		s = &watched{changed: make(chan struct{})}
		w.pods[name] = s
	}
	return s
}

func (s *watched) set(pod *corev1.Pod) {
	s.pod = pod
	close(s.changed)
	s.changed = make(chan struct{})
}

// record records a Pod that this process has created, if the watch has not seen it yet.
func (w *watching) record(pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.entry(pod.Name); s.pod == nil || s.pod.UID != pod.UID {
		s.set(pod)
	}
}

// forget drops a Pod that no longer exists.
func (w *watching) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, name)
}

// now returns a Pod, nil if it does not exist, and a channel that is closed when that changes.
func (w *watching) now(name string) (*corev1.Pod, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.entry(name)
	return s.pod, s.changed
}
