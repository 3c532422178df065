package server

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/api"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/fake"
)

// Why a field needs no check of its own.
const (
	insideOnly = "has an effect inside the sandbox only"
	ofClient   = "is about the client's own: its command, its answer, its workspace"
	number     = "is a number or a time that the schema or the library bounds"
	nested     = "is a structure whose fields are in this table"
)

// gates has each field of each structure in a request, and each parameter, and what checks that a client may set it. Two fields with one meaning have
// one check.
var gates = map[string]map[string]string{
	"Spec": {
		"allow_unsafe": "Permit.check", "binary": "Server.permitted", "compose": nested, "config_file": "is only shown", "dir": insideOnly, "env": insideOnly,
		"image": "Permit.checkImage", "images": "lease.check: each was permitted by the name of its image", "keep": "Permit.check", "labels": ofClient, "limits": nested, "mounts": nested,
		"name": ofClient, "network": nested, "ports": "Spec.Validate: they need a network, see network", "runtime": "Permit.check", "seccomp": "Permit.check",
		"shm_size": "Spec.Validate: it counts toward the memory limit", "tmpfs": "Spec.Validate: they count toward the memory limit", "ttl_ms": "Permit.check", "user": insideOnly,
	},
	"Cleanup": {"dry_run": "takes away", "names": "Server.cleanUp: Permit.Kept, and only kept ones that nobody holds"},
	"Compose": {
		"allow_read": "Permit.checkPaths", "allow_unsafe": "Permit.checkProject", "build_timeout_ms": number, "content": "Permit.checkProject",
		"dir": "Permit.checkPaths", "dockerfile": "Permit.checkPaths, with its folder unless dir is set", "egress": "Permit.checkProject", "env": "is for interpolation: the project's files are checked after it",
		"env_files": "Permit.checkPaths", "files": "Permit.checkPaths, with the first one's folder unless dir is set", "host_env": "Permit.checkProject", "offline": "takes away", "prebuilt": ofClient,
		"profiles": "chooses services of checked files", "pull_timeout_ms": number, "ready_timeout_ms": number, "service": "chooses a service of checked files",
	},
	"Limits":  {"cpus": number, "disk": number, "memory": "Permit.check", "pids": "Permit.check"},
	"Mount":   {"container": insideOnly, "host": "Permit.checkPaths, for a session with its own workspace", "writable": insideOnly + ": what is allowed may be written"},
	"Network": {"allow": "Permit.check", "mode": "Permit.check"},
	"Port":    {"address": "Spec.Validate and SpawnOptions.Options: the loopback", "container": number, "host": number, "protocol": number},
	"SessionOptions": {
		"allow_read": "Server.environment", "allow_unsafe": "Server.environment", "asset_dir": "Server.environment", "assets": nested, "environment": "Server.environment; its sandboxes start through leasedProvider",
		"file": "Server.environment", "hgid": insideOnly, "huid": insideOnly, "inputs": nested, "kind": ofClient, "limits": "Permit.checkWorkspace", "snapshot": "Server.environment", "workspace": "Server.environment",
	},
	"Asset":           {"path": "package session: no link leads out of asset_dir", "save_path": insideOnly},
	"Input":           {"content": ofClient, "mode": number, "path": "package workspace: it is in the workspace"},
	"WorkspaceLimits": {"bytes": "Permit.checkWorkspace", "entries": "Permit.checkWorkspace", "stored": "Permit.checkWorkspace"},
	"SpawnOptions": {
		"disable_setup": insideOnly, "env": insideOnly, "image": "leasedProvider: it is the image of a Spec", "mounts": "Server.spawn, and leasedProvider", "ports": "leasedProvider: they are those of a Spec",
		"setup": insideOnly, "user": insideOnly,
	},
	"Execute": {
		"command": insideOnly, "cpu_time_ms": number, "entry": insideOnly, "env": insideOnly, "stderr_cap": "checkCaps", "stdin": ofClient, "stdout_cap": "checkCaps", "timeout_ms": number,
	},
	"EvaluationOptions": {
		"allow_read": "Server.checkEvaluation", "allow_unsafe": "Server.checkEvaluation", "epochs": number, "fail_fast": ofClient, "limit": number, "max_sandboxes": "Server.create: the server's limit holds too",
		"max_starting": "Server.create: the server's limit holds too", "name": "Server.checkEvaluation, with runs", "resume": "Server.checkEvaluation", "retries": number, "retry_errors": ofClient, "retry_failed": ofClient,
		"runs": "Server.checkEvaluation", "samples": ofClient, "shuffle": ofClient, "task": "Server.checkEvaluation, with its folder",
	},
	"Cmd": {
		"args": insideOnly, "cols": number, "cpu_time_ms": number, "detach": "ends with the sandbox", "dir": insideOnly, "env": insideOnly, "events": ofClient, "grace_ms": number, "kill_rest": insideOnly,
		"rlimits": nested, "rows": number, "stderr_cap": "checkCaps", "stdin": ofClient, "stdin_pipe": ofClient, "stdout_cap": "checkCaps", "term": insideOnly, "timeout_ms": number, "tty": insideOnly,
		"user": insideOnly, "via_engine": insideOnly,
	},
	"Rlimits":                {"cpu": number, "file_size": number, "open_files": number, "processes": number},
	"Text":                   {"base64": ofClient},
	"Globs":                  {"globs": "package session: files of the workspace"},
	"Value":                  {"value": ofClient},
	"Change-ownerRequest":    {"owner": insideOnly, "path": insideOnly, "recursive": insideOnly},
	"Make-linkRequest":       {"path": insideOnly, "target": insideOnly},
	"Change-modeRequest":     {"mode": number, "path": insideOnly},
	"Make-directoryRequest":  {"mode": number, "owner": insideOnly, "parents": insideOnly, "path": insideOnly},
	"Remove-fileRequest":     {"path": insideOnly, "recursive": insideOnly},
	"Rename-fileRequest":     {"path": insideOnly, "to": insideOnly},
	"Renew-sandboxRequest":   {"ttl_ms": "on kept sandboxes only, which Permit.Kept permits"},
	"Resize-terminalRequest": {"cols": number, "rows": number},
	"Signal-commandRequest":  {"signal": insideOnly},
	// of paths, queries and headers
	"parameters": {
		"Fumehood-Lease": "Server.hold", "Idempotency-Key": "lease.checkKey", "Idempotency-Received": ofClient, "after": number, "atomic": insideOnly, "by": ofClient, "evaluation": "lookup: one of the lease",
		"folder": "Server.checkRunPath", "follow": ofClient, "image": "Server.status: Permit.checkImage", "modified": insideOnly, "refresh": ofClient, "tail": number, "wait": "holds the client's own command, for as long as its lease", "format": ofClient, "from": number, "journal": ofClient + ", of which memory is bounded", "limit": number,
		"idle_ms": "Server.idleTime", "key": "lease.checkKey", "kill": ofClient, "lease": "Server.hold", "length": number, "max_bytes": ofClient, "mode": number,
		"number": "openSession.snapshots: a checkpoint of the session", "offset": number, "owner": insideOnly, "pass_at": number, "path": insideOnly, "port": insideOnly, "process": "held.process: one of the sandbox",
		"provider": "Server.permitted", "run": "Server.checkRunPath", "runtime": "lookup: one of the session", "sandbox": "Server.find: one of the lease, or a kept one", "service": insideOnly,
		"session": "lookup: one of the lease", "stderr": number, "stdout": number, "user": insideOnly,
	},
}

// A field of a request that is new needs a decision who may set it.
func TestPermit_fields(t *testing.T) {
	s := New(t.Context(), Options{})
	schemas := s.api.OpenAPI().Components.Schemas
	found := map[string]map[string]string{}
	var visit func(name string, node *huma.Schema)
	visit = func(name string, node *huma.Schema) {
		if node == nil {
			return
		}
		if node.Ref != "" {
			name, node = node.Ref[strings.LastIndex(node.Ref, "/")+1:], schemas.SchemaFromRef(node.Ref)
			if found[name] != nil {
				return
			}
			found[name] = map[string]string{}
		}
		for field, schema := range node.Properties {
			if found[name] == nil {
				found[name] = map[string]string{}
			}
			found[name][field] = gates[name][field]
			if gates[name][field] == "" {
				t.Errorf("%s.%s: no gate is named: write in gates what checks it", name, field)
			}
			visit(name+"."+field, schema)
		}
		more, _ := node.AdditionalProperties.(*huma.Schema)
		for _, each := range slices.Concat([]*huma.Schema{node.Items, more}, node.OneOf, node.AnyOf, node.AllOf) {
			visit(name, each)
		}
	}
	for path, item := range s.api.OpenAPI().Paths {
		for _, o := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete} {
			if o == nil {
				continue
			}
			parameters := map[string]*huma.Schema{}
			for _, p := range o.Parameters {
				parameters[p.Name] = p.Schema
			}
			visit("parameters", &huma.Schema{Properties: parameters})
			if o.RequestBody == nil {
				continue
			}
			for _, content := range o.RequestBody.Content {
				visit(o.OperationID+" "+path, content.Schema)
			}
		}
	}
	for name, fields := range gates {
		if !maps.Equal(fields, found[name]) {
			t.Errorf("%s has the fields %q, and the table %q", name, slices.Sorted(maps.Keys(found[name])), slices.Sorted(maps.Keys(fields)))
		}
	}
}

// imaged is a provider whose images have their names, with a prefix, as IDs.
type imaged struct{ *fake.Provider }

func (imaged) ImageKey(_ context.Context, spec fumehood.Spec) (string, error) { return spec.Image, nil }

func (imaged) Prepare(_ context.Context, spec fumehood.Spec, _ provider.PrepareOptions) (map[string]string, error) {
	return map[string]string{"default": "id of " + spec.Image}, nil
}

// The images that run are those that were permitted.
func TestPermit_images(t *testing.T) {
	t.Parallel()
	c := serve(t, Options{Permit: Permit{Images: []string{"python:*"}}})
	p := fumehood.Provider(imaged{fake.New(fake.Options{})})
	c.opened.Store(&p)
	python := map[string]string{"default": "id of python:3"}
	withImage := func(image string, ids map[string]string) fumehood.Spec {
		return fumehood.Spec{Image: image, Images: ids}
	}
	c.fails(http.StatusForbidden, fumehood.CodePermission, "POST", "/v1/images", withImage("evil", nil))
	for name, ids := range map[string]map[string]string{
		"by name": {"default": "evil"}, "by ID": {"default": "id of evil"}, "empty": {"default": ""}, "a file": {"default": "docker-archive:/etc/shadow"},
		"not prepared yet": python, "another service": {"other": "evil"},
	} {
		for _, path := range []string{"/v1/sandboxes", "/v1/images"} {
			if status, text := c.answer("POST", path, withImage("python:3", ids)); status != http.StatusGone || !strings.Contains(string(text), "was not prepared for this lease") {
				t.Errorf("%s, %s: got %d %s", path, name, status, text)
			}
		}
	}
	if status, text := c.answer("POST", "/v1/images", withImage("python:3", nil)); status != http.StatusOK || !strings.Contains(string(text), python["default"]) {
		t.Fatalf("got %d %s", status, text)
	}
	var box api.Sandbox
	c.ok("POST", "/v1/sandboxes", withImage("python:3", python), &box)
	c.ok("DELETE", "/v1/sandboxes/"+box.ID, nil, nil)
	c.fails(http.StatusForbidden, fumehood.CodePermission, "POST", "/v1/sandboxes", withImage("evil", python))
	c.fails(http.StatusGone, api.CodeStale, "POST", "/v1/sandboxes", withImage("python:3", map[string]string{"default": python["default"], "other": "evil"}))
	var other api.Lease
	c.ok("POST", "/v1/leases", struct{}{}, &other)
	c.fails(http.StatusGone, api.CodeStale, "POST", "/v1/sandboxes", withImage("python:3", python), "Fumehood-Lease", other.ID)
	// What a session or an evaluation prepares may run too.
	c.mu.Lock()
	l := c.leases[c.lease]
	c.mu.Unlock()
	leased, err := c.providerFor(t.Context(), l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leased.Start(t.Context(), withImage("python:4", map[string]string{"default": "id of python:4"})); err == nil || !strings.Contains(err.Error(), "was not prepared") {
		t.Errorf("got %v", err)
	}
}
