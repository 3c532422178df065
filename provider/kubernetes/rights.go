package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Rights are the rules of a Role with what the provider needs in its namespace, as YAML. It needs nothing in the cluster.
const Rights = `rules:
- apiGroups: [""]
  resources: [pods]
  verbs: [create, get, list, watch, delete, patch]
- apiGroups: [""]
  resources: [pods/attach, pods/exec]
  verbs: [create, get]
`

// WorkerRights are the rules of a Role with what WorkerService needs in its namespace, as YAML.
const WorkerRights = `rules:
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list]
`

// Role returns the manifest of a Role with Rights, as YAML. An empty namespace is left out.
func Role(namespace string) string { return role("fumehood", namespace, Rights) }

// WorkerRole returns the manifest of a Role with WorkerRights, as YAML. An empty namespace is left out.
func WorkerRole(namespace string) string { return role("fumehood-workers", namespace, WorkerRights) }

func role(name, namespace, rules string) string {
	text := "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata:\n  name: " + name + "\n"
	if namespace != "" {
		text += "  namespace: " + namespace + "\n"
	}
	return text + rules
}

// missingRights returns which of Rights this account has not, such as "list pods".
func (a *api) missingRights(ctx context.Context) (missing []string, err error) {
	var role struct {
		Rules []struct{ Resources, Verbs []string }
	}
	if err := yaml.Unmarshal([]byte(Rights), &role); err != nil {
		return nil, err
	}
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				allowed, err := a.may(ctx, verb, resource)
				if err != nil {
					return nil, err
				}
				if !allowed {
					missing = append(missing, verb+" "+resource)
				}
			}
		}
	}
	return missing, nil
}

// may reports whether this account may do something in the namespace. Each account may ask that.
func (a *api) may(ctx context.Context, verb, resource string) (bool, error) {
	ctx, cancel := call(ctx)
	defer cancel()
	const kind, version = "selfsubjectaccessreviews", "authorization.k8s.io/v1"
	name, part, _ := strings.Cut(resource, "/")
	attributes := map[string]string{"namespace": a.namespace, "verb": verb, "resource": name, "subresource": part}
	body, err := json.Marshal(map[string]any{
		"apiVersion": version, "kind": "SelfSubjectAccessReview", "spec": map[string]any{"resourceAttributes": attributes},
	})
	if err != nil {
		return false, err
	}
	raw, err := a.rest.Post().AbsPath("/apis", version, kind).SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return false, explain(err)
	}
	var answer struct{ Status struct{ Allowed bool } }
	if err := json.Unmarshal(raw, &answer); err != nil {
		return false, fmt.Errorf("the answer to an access review: %w", err)
	}
	return answer.Status.Allowed, nil
}
