//go:build linux && amd64

package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/fumehood/fumehood/provider/conformance"
)

// The DaemonSet that 'fumehood image prefetch --print-daemonset' prints makes the node have images, also one without a shell, with a
// user that is a name, and with a working directory that others cannot enter. When the DaemonSet and the registry are gone,
// sandboxes start with the images.
func TestPrefetch_daemonSet(t *testing.T) {
	t.Parallel()
	path, env := program(t)
	config, err := clientcmd.BuildConfigFromFlags("", node(t))
	if err != nil {
		t.Fatal(err)
	}
	n := &workersNamespace{t: t, url: config.Host, name: "default", path: path, dir: t.TempDir(), env: env}
	if n.http, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	var refs []string
	for i, image := range []string{static, busybox} {
		file := n.file(fmt.Sprintf("%d.tar", i))
		n.must("docker", "save", "-o", file, image)
		img, err := tarball.ImageFromPath(file, nil)
		if err != nil {
			t.Fatal(err)
		}
		content, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		content = content.DeepCopy()
		content.Created = v1.Time{Time: time.Now()} // an image that the node does not have
		content.Config.User, content.Config.WorkingDir = "nobody-"+fmt.Sprint(i), "/root"
		if img, err = mutate.ConfigFile(img, content); err != nil {
			t.Fatal(err)
		}
		tag, err := name.NewTag(fmt.Sprintf("%s/prefetched-%d:%d", strings.TrimPrefix(server.URL, "http://"), os.Getpid(), i))
		if err == nil {
			err = remote.Write(tag, img, remote.WithContext(t.Context()))
		}
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, tag.String())
	}
	task := fmt.Sprintf("prefetch-%d", os.Getpid())
	n.write("task.yaml", []byte("name: "+task+"\ncommand: [a]\nsamples:\n- {id: a, environment: {image: '"+refs[0]+"'}}\n- {id: b, environment: {image: '"+refs[1]+"'}}\n"))
	code, text := n.run("image", "prefetch", n.file("task.yaml"), "--print-daemonset")
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	const sets = "/apis/apps/v1/namespaces/default/daemonsets"
	set := sets + "/fumehood-images-" + task + "-1"
	n.send("POST", sets, text)
	deleted := false
	remove := func() {
		if !deleted {
			deleted = true
			n.send("DELETE", set, "")
		}
	}
	t.Cleanup(remove)
	pods := "/api/v1/namespaces/default/pods?labelSelector=app.kubernetes.io/part-of=" + task
	defer func() {
		if t.Failed() {
			t.Log(n.get(pods))
		}
	}()
	conformance.Eventually(t, "the DaemonSet is ready", func() bool {
		var state appsv1.DaemonSet
		return json.Unmarshal([]byte(n.get(set)), &state) == nil && state.Status.NumberReady == 1
	})
	remove()
	conformance.Eventually(t, "the Pod is gone", func() bool {
		var list struct{ Items []any }
		return json.Unmarshal([]byte(n.get(pods)), &list) == nil && len(list.Items) == 0
	})
	server.Close()
	if code, out := n.run("run", "--image", refs[0], "--user", "0", "--", "/none"); code != 127 {
		t.Errorf("an image without programs: exit code %d: %s", code, out)
	}
	if code, out := n.run("run", "--image", refs[1], "--user", "0", "--", "echo", "there"); code != 0 || !strings.Contains(out, "there") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
