package kubernetes

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
)

// server is the Pods' part of an API server.
type server struct {
	mu      sync.Mutex
	pods    []corev1.Pod
	lists   int
	refuse  int           // the status of the next answers; 0 answers
	events  chan any      // sent to the watch; nil ends it
	watched chan struct{} // receives a value when a watch begins
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	refuse, list := s.refuse, corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: s.pods}
	s.refuse = 0
	s.mu.Unlock()
	if refuse != 0 {
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(refuse)
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(refuse)})
		return
	}
	if r.URL.Query().Get("watch") == "" {
		s.mu.Lock()
		s.lists++
		s.mu.Unlock()
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	w.(http.Flusher).Flush()
	s.watched <- struct{}{}
	for {
		select {
		case e := <-s.events:
			if e == nil {
				return
			}
			_ = json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

func (s *server) set(refuse int, pods ...corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse, s.pods = refuse, pods
}

func event(kind string, object any) any { return map[string]any{"type": kind, "object": object} }

func podNamed(name, uid, phase string) corev1.Pod {
	return corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)}, Status: corev1.PodStatus{Phase: corev1.PodPhase(phase)},
	}
}

// fakeAPI returns an API whose server is in this process.
func fakeAPI(t *testing.T) (*api, *server) {
	t.Helper()
	s := &server{events: make(chan any), watched: make(chan struct{}, 8)}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	file := filepath.Join(t.TempDir(), "config")
	config := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"" + h.URL + "\"}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := connect(Options{Kubeconfig: file})
	if err != nil {
		t.Fatal(err)
	}
	return a, s
}

func TestWatching(t *testing.T) {
	a, s := fakeAPI(t)
	s.set(0, podNamed("old", "1", "Running"))
	w := newWatching(t.Context(), a, "", "", slog.New(slog.DiscardHandler))
	defer w.end()
	phase := func(name string) string {
		if pod, _ := w.now(name); pod != nil {
			return string(pod.Status.Phase)
		}
		return "none"
	}
	becomes := func(name, want string) {
		t.Helper()
		conformance.Eventually(t, name+" is "+want, func() bool { return phase(name) == want })
	}
	<-s.watched
	becomes("old", "Running")
	s.events <- event("ADDED", podNamed("new", "2", "Pending"))
	becomes("new", "Pending")
	s.events <- event("MODIFIED", podNamed("new", "2", "Running"))
	becomes("new", "Running")
	s.events <- event("DELETED", podNamed("old", "1", "Running"))
	becomes("old", "none")

	// A watch whose version is too old begins again, with what has changed meanwhile.
	s.set(0, podNamed("third", "3", "Pending"))
	s.events <- event("ERROR", metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: http.StatusGone})
	<-s.watched
	becomes("third", "Pending")
	becomes("new", "none")

	// So does one whose server ends it, and does not answer for a while.
	s.set(http.StatusInternalServerError, podNamed("third", "3", "Running"))
	s.events <- nil
	<-s.watched
	becomes("third", "Running")
}

func TestAPI_refusals(t *testing.T) {
	a, s := fakeAPI(t)
	s.set(http.StatusTooManyRequests)
	if _, _, err := a.list(t.Context(), "", ""); err != nil || s.lists != 1 {
		t.Errorf("after 429 with Retry-After: %d lists, %v", s.lists, err)
	}
	for code, class := range map[int]error{
		http.StatusForbidden: fumehood.ErrConfig, http.StatusUnprocessableEntity: fumehood.ErrConfig, http.StatusConflict: fumehood.ErrInfrastructure,
	} {
		s.set(code)
		_, _, err := a.list(t.Context(), "", "")
		conformance.WantError(t, err, class)
	}
}
