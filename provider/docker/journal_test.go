package docker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/journal"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/docker"
)

// journalOf returns the lines of a journal, and their kinds with phases.
func journalOf(t *testing.T, journal []byte) (kinds []string, lines []map[string]any) {
	t.Helper()
	for text := range bytes.Lines(journal) {
		var line map[string]any
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		kind := line["kind"].(string)
		if phase, ok := line["phase"].(string); ok {
			kind += " " + phase
		}
		kinds, lines = append(kinds, kind), append(lines, line)
	}
	return kinds, lines
}

func TestJournal_startPhases(t *testing.T) {
	t.Parallel()
	p := newProvider(t, docker.Options{})
	for name, c := range map[string]struct {
		spec            fumehood.Spec
		network, egress string
		ports, subnets  int
	}{
		"an image":            {fumehood.Spec{Image: "fumehood-test/busybox"}, "none", "none", 0, 0},
		"an image on bridge":  {fumehood.Spec{Image: "fumehood-test/busybox", Network: fumehood.Network{Mode: "bridge"}, Ports: []fumehood.Port{{Container: 80}}}, "bridge", "internet", 1, 1},
		"an internal project": {fumehood.Spec{Compose: project(t, conformance.Shopping(busybox, "7"))}, "internal", "none", 1, 1},
	} {
		var out bytes.Buffer
		c.spec.Journal = journal.New(&out, nil).Logger
		sb := start(t, p, c.spec)
		if err := sb.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		kinds, lines := journalOf(t, out.Bytes())
		if want := []string{"phase images", "phase guest", "phase create", "network", "phase start", "sandbox", "phase close"}; !slices.Equal(kinds, want) {
			t.Errorf("%s: got %q", name, kinds)
			continue
		}
		n := lines[3]
		ports, _ := n["ports"].([]any)
		subnets, _ := n["subnets"].([]any)
		if n["network"] != c.network || n["egress"] != c.egress || len(ports) != c.ports || len(subnets) != c.subnets {
			t.Errorf("%s: got %v", name, n)
		}
	}
}

// The error contains the log of a failed service, and the log may contain variables that only the project defines.
func TestJournal_hidesVariables(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	spec := fumehood.Spec{Journal: journal.New(&out, nil).Logger, Compose: project(t, `
services:
  default: {image: fumehood-test/busybox, command: sleep infinity, healthcheck: {test: "true", interval: 1h}} # db fails first
  db:
    image: fumehood-test/busybox
    command: [sh, -c, "echo the password is $$PASSWORD; exit 3"]
    environment: {PASSWORD: "from-the-file"}
`)}
	_, err := newProvider(t, docker.Options{}).Start(t.Context(), spec)
	if err == nil || !strings.Contains(err.Error(), "the password is from-the-file") {
		t.Fatalf("got %v", err)
	}
	if err := provider.Redact(err, &spec); strings.Contains(err.Error(), "from-the-file") || !strings.Contains(err.Error(), "the password is [redacted PASSWORD]") || !errors.Is(err, fumehood.ErrConfig) && !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("the result contains %v", err)
	}
	kinds, _ := journalOf(t, out.Bytes())
	if last := kinds[len(kinds)-2:]; !slices.Equal(last, []string{"phase start", "phase close"}) || strings.Contains(out.String(), "from-the-file") || !strings.Contains(out.String(), "the password is [redacted PASSWORD]") {
		t.Errorf("got\n%s", &out)
	}
}
