//go:build linux && amd64

package kubernetes_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fumehood/fumehood/provider/conformance"
)

// gateway is the node's address for its Pods, see scripts/kubernetes-node.
const gateway = "10.201.97.1"

// workersNamespace is a namespace of the node with workers, and what reaches them.
type workersNamespace struct {
	t         *testing.T
	http      *http.Client
	url, name string
	path, dir string // of the program, and of its files
	env       []string
}

// newWorkersNamespace makes a namespace with the Secrets of workers, and an image of them.
func newWorkersNamespace(t *testing.T, kind string) (n *workersNamespace, image string) {
	t.Helper()
	path, env := program(t)
	config, err := clientcmd.BuildConfigFromFlags("", node(t))
	if err != nil {
		t.Fatal(err)
	}
	n = &workersNamespace{t: t, url: config.Host, name: fmt.Sprintf("workers-%s-%d", kind, os.Getpid()), path: path, dir: t.TempDir()}
	if n.http, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	n.env = append(env, "FUMEHOOD_PROVIDER=workers", "FUMEHOOD_GUEST_IMAGE=", "FUMEHOOD_WORKERS=kubernetes:fumehood", "FUMEHOOD_NAMESPACE="+n.name,
		"FUMEHOOD_WORKERS_TOKEN_FILE="+n.file("token"), "FUMEHOOD_WORKERS_CA="+n.file("tls.crt"))
	n.send("POST", "/api/v1/namespaces", "metadata: {name: "+n.name+"}")
	t.Cleanup(func() {
		n.send("DELETE", "/api/v1/namespaces/"+n.name, "")
		conformance.Eventually(t, "the namespace is gone", func() bool { return strings.Contains(n.get("/api/v1/namespaces/"+n.name), `"NotFound"`) })
	})
	n.write("token", []byte("a-token-of-some-length"))
	n.makeCertificate("fumehood." + n.name + ".svc")
	secret := func(name, kind string, keys ...string) {
		text := "metadata: {name: " + name + "}\ntype: " + kind + "\ndata:\n"
		for _, key := range keys {
			content, err := os.ReadFile(n.file(key))
			if err != nil {
				t.Fatal(err)
			}
			text += "  " + key + ": " + base64.StdEncoding.EncodeToString(content) + "\n"
		}
		n.send("POST", "/api/v1/namespaces/"+n.name+"/secrets", text)
	}
	secret("token", "Opaque", "token")
	secret("tls", "kubernetes.io/tls", "tls.crt", "tls.key")
	return n, n.loadImage()
}

func (n *workersNamespace) file(name string) string { return filepath.Join(n.dir, name) }

func (n *workersNamespace) write(name string, content []byte) {
	n.t.Helper()
	if err := os.WriteFile(n.file(name), content, 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// makeCertificate writes a certificate with a name that signs itself.
func (n *workersNamespace) makeCertificate(name string) {
	n.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		n.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{name}, IsCA: true, BasicConstraintsValid: true,
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		n.t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		n.t.Fatal(err)
	}
	n.write("tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}))
	n.write("tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}))
}

// loadImage makes an image with the program, and loads it into the node.
func (n *workersNamespace) loadImage() (ref string) {
	n.t.Helper()
	ref = "docker.io/fumehood-test/" + n.name + ":1"
	n.write("Dockerfile", []byte("FROM "+busybox+"\nCOPY fumehood /bin/fumehood\n"))
	if err := os.Link(n.path, n.file("fumehood")); err != nil {
		n.t.Fatal(err)
	}
	n.must("docker", "build", "--quiet", "--tag", ref, n.dir)
	n.t.Cleanup(func() {
		if out, err := exec.Command("docker", "image", "rm", ref).CombinedOutput(); err != nil { //nolint:noctx // of a cleanup
			n.t.Errorf("%v: %s", err, out)
		}
	})
	n.must("docker", "save", "--output", n.file("image.tar"), ref)
	n.must("../../scripts/kubernetes-node", "load", filepath.Dir(node(n.t)), n.file("image.tar"))
	return ref
}

func (n *workersNamespace) must(args ...string) {
	n.t.Helper()
	if out, err := exec.CommandContext(n.t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %v: %s", args, err, out)
	}
}

// send sends an object as YAML to the API server.
func (n *workersNamespace) send(method, path, object string) {
	n.t.Helper()
	req, err := http.NewRequest(method, n.url+path, strings.NewReader(object)) //nolint:noctx // also of cleanups
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/yaml")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := n.http.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode >= http.StatusMultipleChoices {
		n.t.Fatalf("%s %s: %s", method, path, text)
	}
}

// get returns an object, or the API server's error.
func (n *workersNamespace) get(path string) string {
	resp, err := n.http.Get(n.url + path) //nolint:noctx // also of cleanups
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

// run runs the program.
func (n *workersNamespace) run(args ...string) (code int, out string) {
	cmd := exec.CommandContext(n.t.Context(), n.path, args...)
	cmd.Env = n.env
	text, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(text)
}

// await waits until doctor sees a number of workers.
func (n *workersNamespace) await(count int) {
	n.t.Helper()
	var out string
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); {
		if _, out = n.run("doctor"); strings.Count(out, "ok    worker ") == count {
			return
		}
	}
	n.t.Fatalf("%d workers are not ready:\n%s\n%s", count, out, n.get("/api/v1/namespaces/"+n.name+"/pods/fumehood-0"))
}

// poolImage pushes busybox to a registry that Pods reach, and returns its name there.
func poolImage(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "0.0.0.0:0") //nolint:gosec // the Pods reach it
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "image.tar")
	if out, err := exec.CommandContext(t.Context(), "docker", "save", "-o", file, busybox).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	tag, err := name.NewTag("127.0.0.1:" + port + "/busybox:1")
	if err == nil {
		err = remote.Write(tag, img, remote.WithContext(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return gateway + ":" + port + "/busybox:1"
}

// The manifest that 'fumehood workers manifest' prints runs workers, and --workers kubernetes:SERVICE finds them, also after
// their number has changed.
func TestWorkers(t *testing.T) {
	t.Parallel()
	for kind, c := range map[string]struct {
		flags  []string
		limits bool // the kernel limits each sandbox
	}{
		"default":    {[]string{"--", "--log-level", "warn"}, false},
		"privileged": {[]string{"--privileged", "--", "--log-level", "warn"}, true},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			n, ref := newWorkersNamespace(t, kind)
			image := poolImage(t)
			code, text := n.run(append([]string{
				"workers", "manifest", "--image", ref, "--token-secret", "token", "--tls-secret", "tls", "--memory", "2GiB", "--cpus", "0.1", "--storage", "1GiB",
				"--max-sandboxes", "4", "--drain", "20s",
			}, c.flags...)...)
			service, set, ok := strings.Cut(text, "\n---\n")
			if code != 0 || !ok {
				t.Fatalf("exit code %d: %s", code, text)
			}
			const sets = "/statefulsets"
			n.send("POST", "/api/v1/namespaces/"+n.name+"/services", service)
			n.send("POST", "/apis/apps/v1/namespaces/"+n.name+sets, set)
			n.await(1)
			if code, out := n.run("run", "--image", image, "--", "sh", "-c", "id -u; exit 3"); code != 3 || !strings.Contains(out, "0\n") {
				t.Errorf("exit code %d: %s", code, out)
			}
			code, out := n.run("run", "--image", image, "--memory", "64MiB", "--timeout", "1m", "--", "sh", "-c", "x=a; while :; do x=$x$x; done")
			if c.limits && (code != 137 || !strings.Contains(out, "out of memory")) || !c.limits && (code != 125 || !strings.Contains(out, "--allow-unenforced-limits")) {
				t.Errorf("with a limit of memory: exit code %d: %s", code, out)
			}
			scale := func(replicas int) {
				n.send("PATCH", "/apis/apps/v1/namespaces/"+n.name+sets+"/fumehood", fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
				n.await(replicas)
			}
			scale(2)
			scale(1)
			if code, out := n.run("run", "--image", image, "--", "true"); code != 0 {
				t.Errorf("exit code %d: %s", code, out)
			}
			scale(0)
			if code, out := n.run("run", "--image", image, "--", "true"); code != 125 || !strings.Contains(out, "no worker of kubernetes:fumehood is ready") {
				t.Errorf("without workers: exit code %d: %s", code, out)
			}
		})
	}
}
