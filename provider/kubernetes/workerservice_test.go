//go:build linux && amd64

package kubernetes_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

// fakeAPI returns a kubeconfig for an API server that answers lists of endpoint slices with what answer returns.
func fakeAPI(t *testing.T, answer func() (status int, body string)) (kubeconfig string, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.String())
		status, body := answer()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	kubeconfig = filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: '" + s.URL +
		"'}}]\ncontexts: [{name: x, context: {cluster: c, namespace: evals}}]\ncurrent-context: x\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return kubeconfig, asked
}

// slice returns an endpoint slice in JSON. An address that ends in ! is not ready, one that ends in ? says nothing about that.
func slice(kind, ports string, addresses ...string) string {
	var all []string
	for _, a := range addresses {
		conditions := `{"ready":true}`
		if name, ok := strings.CutSuffix(a, "!"); ok {
			a, conditions = name, `{"ready":false,"serving":true,"terminating":true}`
		} else if name, ok := strings.CutSuffix(a, "?"); ok {
			a, conditions = name, `{}`
		}
		all = append(all, fmt.Sprintf(`{"addresses":[%q],"conditions":%s}`, a, conditions))
	}
	return fmt.Sprintf(`{"addressType":%q,"ports":[%s],"endpoints":[%s]}`, kind, ports, strings.Join(all, ","))
}

func TestWorkerService_List(t *testing.T) {
	t.Parallel()
	const port = `{"name":"","port":8420}`
	for name, c := range map[string]struct {
		status int
		slices []string
		want   []string
		class  error
		text   string // of the error
	}{
		"none":        {200, nil, nil, nil, ""},
		"not ready":   {200, []string{slice("IPv4", port, "10.0.0.1", "10.0.0.2!", "10.0.0.3?")}, []string{"https://10.0.0.1:8420", "https://10.0.0.3:8420"}, nil, ""},
		"two slices":  {200, []string{slice("IPv4", port, "10.0.0.1"), slice("IPv4", port, "10.0.0.2")}, []string{"https://10.0.0.1:8420", "https://10.0.0.2:8420"}, nil, ""},
		"both kinds":  {200, []string{slice("IPv6", port, "fd00::1"), slice("IPv4", port, "10.0.0.1")}, []string{"https://10.0.0.1:8420"}, nil, ""},
		"IPv6":        {200, []string{slice("IPv6", port, "fd00::1")}, []string{"https://[fd00::1]:8420"}, nil, ""},
		"named port":  {200, []string{slice("IPv4", `{"name":"x","port":1},{"name":"fumehood","port":2}`, "10.0.0.1")}, []string{"https://10.0.0.1:2"}, nil, ""},
		"which port":  {200, []string{slice("IPv4", `{"name":"x","port":1},{"name":"y","port":2}`, "10.0.0.1")}, nil, fumehood.ErrConfig, "several ports"},
		"no rights":   {403, nil, nil, fumehood.ErrConfig, "--print-rbac"},
		"unavailable": {503, nil, nil, fumehood.ErrUnavailable, "the Kubernetes API"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kubeconfig, asked := fakeAPI(t, func() (int, string) {
				if c.status != http.StatusOK {
					reason := map[int]string{403: "Forbidden", 503: "ServiceUnavailable"}[c.status]
					return c.status, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":"User cannot list","reason":%q,"code":%d}`, reason, c.status)
				}
				return c.status, `{"kind":"EndpointSliceList","apiVersion":"discovery.k8s.io/v1","items":[` + strings.Join(c.slices, ",") + `]}`
			})
			s, err := kubernetes.NewWorkerService(kubernetes.Options{Kubeconfig: kubeconfig}, "fumehood")
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.List(t.Context())
			if c.class != nil {
				conformance.WantError(t, err, c.class)
				if !strings.Contains(err.Error(), c.text) {
					t.Errorf("%q is not in: %v", c.text, err)
				}
				return
			}
			if slices.Sort(got); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %v, %v, want %v", got, err, c.want)
			}
			want := []string{"GET /apis/discovery.k8s.io/v1/namespaces/evals/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dfumehood"}
			if !slices.Equal(*asked, want) {
				t.Errorf("asked %v, want %v", *asked, want)
			}
			if s.ServerName() != "fumehood.evals.svc" {
				t.Errorf("the certificate's name is %s", s.ServerName())
			}
		})
	}
}

// The Role allows what List does, and nothing else.
func TestWorkerRole(t *testing.T) {
	t.Parallel()
	var got struct {
		Metadata struct{ Name, Namespace string }
		Rules    []struct {
			APIGroups        []string `yaml:"apiGroups"`
			Resources, Verbs []string
		}
	}
	if err := yaml.Unmarshal([]byte(kubernetes.WorkerRole("evals")), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Rules) != 1 || got.Metadata.Name != "fumehood-workers" || got.Metadata.Namespace != "evals" {
		t.Fatalf("%+v", got)
	}
	r := got.Rules[0]
	if !reflect.DeepEqual([][]string{r.APIGroups, r.Resources, r.Verbs}, [][]string{{"discovery.k8s.io"}, {"endpointslices"}, {"list"}}) {
		t.Errorf("%+v", r)
	}
}

func TestNewWorkerService_name(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a/b", "A", "a,b"} {
		_, err := kubernetes.NewWorkerService(kubernetes.Options{}, name)
		conformance.WantError(t, err, fumehood.ErrConfig)
	}
}
