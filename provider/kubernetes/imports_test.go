package kubernetes

import (
	"os/exec"
	"strings"
	"testing"
)

// Who uses another provider has no package of Kubernetes in the program.
func TestImports(t *testing.T) {
	const module = "github.com/fumehood/fumehood"
	list := func(packages ...string) string {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, packages...)...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	others := list(module, module+"/provider/docker", module+"/provider/native", module+"/provider/local", module+"/provider/fake", module+"/provider/workers", module+"/eval", module+"/session")
	for p := range strings.FieldsSeq(others) {
		if strings.HasPrefix(p, "k8s.io/") || strings.HasPrefix(p, "sigs.k8s.io/") {
			t.Errorf("they import %s", p)
		}
	}
	if own := list(module + "/provider/kubernetes"); !strings.Contains(own, "k8s.io/client-go/rest\n") || strings.Contains(own, "k8s.io/client-go/kubernetes\n") {
		t.Error("the provider imports not package rest, or the whole clientset")
	}
}
