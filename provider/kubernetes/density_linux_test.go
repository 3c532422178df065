//go:build amd64

package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/test/tier"
)

// simulated is an API server with a kubelet: its Pods run at once, each is a guest of this machine in a PID namespace of its own.
type simulated struct {
	guest string // the path of its program

	mu       sync.Mutex
	requests int
	pods     map[string]*simulatedPod
	watches  []chan any
}

type simulatedPod struct {
	corev1.Pod
	main   *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
}

func (s *simulated) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests++
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_, path, _ := strings.Cut(r.URL.Path, "/pods")
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch query := r.URL.Query(); {
	case r.Method == http.MethodPost:
		s.create(w, r)
	case len(parts) == 2:
		s.stream(w, r, parts[0], parts[1], query["command"])
	case r.Method == http.MethodDelete:
		s.remove(parts[0])
		_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Success"})
	case query.Get("watch") != "":
		s.watch(w, r)
	case parts[0] != "":
		s.get(w, parts[0])
	default:
		_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}})
	}
}

func (s *simulated) create(w http.ResponseWriter, r *http.Request) {
	var pod corev1.Pod
	err := json.NewDecoder(r.Body).Decode(&pod)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	pod.TypeMeta, pod.UID = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, types.UID(pod.Name)
	p := &simulatedPod{Pod: pod}
	args := append([]string{"--pid", "--fork", "--mount-proc", "--kill-child", s.guest}, pod.Spec.Containers[0].Command[1:]...)
	p.main = exec.Command("unshare", args...)                             //nolint:noctx // until the Pod is deleted
	p.main.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // or this process has ended
	if p.stdin, err = p.main.StdinPipe(); err == nil {
		p.stdout, err = p.main.StdoutPipe()
	}
	if err == nil {
		err = p.main.Start()
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(pod)
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: serviceName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	s.mu.Lock()
	s.pods[pod.Name] = p
	s.mu.Unlock()
	s.tell(event("ADDED", p.Pod))
}

func (s *simulated) get(w http.ResponseWriter, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.pods[name]; p != nil {
		_ = json.NewEncoder(w).Encode(p.Pod)
		return
	}
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
}

func (s *simulated) tell(e any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, watch := range s.watches {
		watch <- e
	}
}

func (s *simulated) remove(name string) {
	s.mu.Lock()
	p := s.pods[name]
	delete(s.pods, name)
	s.mu.Unlock()
	if p != nil {
		_ = p.main.Process.Kill() // and with it the guest
		_ = p.main.Wait()
		s.tell(event("DELETED", p.Pod))
	}
}

func (s *simulated) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan any, 10_000)
	s.mu.Lock()
	s.watches = append(s.watches, events)
	for _, p := range s.pods { // what has changed since the list
		events <- event("ADDED", p.Pod)
	}
	s.mu.Unlock()
	w.(http.Flusher).Flush()
	for {
		select {
		case e := <-events:
			_ = json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// stream connects a WebSocket with a Pod's guest, or with a program that it starts: a relay.
func (s *simulated) stream(w http.ResponseWriter, r *http.Request, name, kind string, command []string) {
	s.mu.Lock()
	p := s.pods[name]
	s.mu.Unlock()
	conn, err := (&websocket.Upgrader{Subprotocols: []string{"v5.channel.k8s.io"}, ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10}).Upgrade(w, r, nil)
	if err != nil || p == nil {
		return
	}
	defer conn.Close()
	stdin, stdout := p.stdin, p.stdout
	if kind == "exec" { // a relay; without a process for it, 1000 sandboxes stay below the kernel's limit
		socket, err := net.Dial("unix", "@"+command[2]) //nolint:noctx // a socket of this machine
		if err != nil {
			return
		}
		defer socket.Close()
		stdin, stdout = socket, socket
	}
	go func() {
		for {
			_, message, err := conn.ReadMessage()
			if err != nil || len(message) > 1 && message[0] == 255 { // standard input is closed
				_ = stdin.Close()
				return
			}
			if message[0] == 0 {
				_, _ = stdin.Write(message[1:])
			}
		}
	}()
	buf := make([]byte, 4<<10)
	for {
		n, err := stdout.Read(buf)
		if err == nil {
			err = conn.WriteMessage(websocket.BinaryMessage, append([]byte{1}, buf[:n]...))
		}
		if err != nil {
			break
		}
	}
	_ = conn.WriteMessage(websocket.BinaryMessage, append([]byte{3}, `{"status":"Success"}`...))
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
}

// A thousand sandboxes at once, with an API server and a kubelet in this process: the requests, the memory of this process and the
// time for each.
func TestDensity(t *testing.T) {
	tier.Need(t, tier.All)
	if os.Geteuid() != 0 {
		tier.Missing(t, tier.All, fmt.Errorf("PID namespaces need root"))
	}
	const count, atOnce = 1000, 32
	guest, err := guestbin.For(t.Context(), runtime.GOARCH, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	program, err := guest.Program()
	if err != nil {
		t.Fatal(err)
	}
	s := &simulated{guest: filepath.Join(t.TempDir(), "guest"), pods: map[string]*simulatedPod{}}
	if err := os.WriteFile(s.guest, program, 0o755); err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	defer h.Close()
	config := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"" + h.URL + "\"}}]\ncontexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := New(t.Context(), Options{Kubeconfig: config, GuestImage: "guest:1", NoReaper: true, NoSweep: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close(context.WithoutCancel(t.Context()))
	before := resident(t)
	began := time.Now()
	all := make([]fumehood.Sandbox, count)
	var failed sync.Map
	eachOf(count, atOnce, func(i int) {
		sb, err := p.Start(t.Context(), fumehood.Spec{Image: "any"})
		if err != nil {
			failed.Store(i, err)
			return
		}
		all[i] = sb
		if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"true"}}); err != nil || !res.Success() {
			failed.Store(i, fmt.Errorf("%v, %w", res, err))
		}
	})
	took := time.Since(began)
	memory := (resident(t) - before) / count
	failed.Range(func(i, err any) bool { t.Fatalf("sandbox %v: %v", i, err); return false })
	eachOf(count, atOnce, func(i int) {
		if err := all[i].Close(t.Context()); err != nil {
			failed.Store(i, err)
		}
	})
	failed.Range(func(i, err any) bool { t.Errorf("close sandbox %v: %v", i, err); return false })
	s.mu.Lock()
	defer s.mu.Unlock()
	perLife := float64(s.requests) / count
	t.Logf("%d sandboxes started in %v, %.1f requests for each life, %d KiB of memory for each, with the server's part", count, took.Round(time.Millisecond), perLife, memory>>10)
	if perLife > 8 || memory > 1<<20 || len(s.pods) > 0 {
		t.Errorf("%.1f requests, %d bytes, %d Pods are left; want at most 8, 1 MiB and none", perLife, memory, len(s.pods))
	}
}

// eachOf calls f for the numbers below count, several at once.
func eachOf(count, atOnce int, f func(i int)) {
	numbers := make(chan int)
	var working sync.WaitGroup
	for range atOnce {
		working.Go(func() {
			for i := range numbers {
				f(i)
			}
		})
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	working.Wait()
}

// resident returns the memory of this process after a garbage collection, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(text[bytes.Index(text, []byte("VmRSS:")):])
	var kib int64
	if _, err := fmt.Sscan(string(fields[1]), &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
