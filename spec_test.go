package fumehood

import (
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSpec_ports(t *testing.T) {
	for name, c := range map[string]struct {
		spec Spec
		want string // part of the error; empty means none
	}{
		"none":                     {Spec{}, ""},
		"on a bridge":              {Spec{Network: Network{Mode: "bridge"}, Ports: []Port{{Host: 8080, Container: 80}, {Container: 80}, {Container: 443}}}, ""},
		"on a named network":       {Spec{Network: Network{Mode: "mine"}, Ports: []Port{{Host: 65535, Container: 65535}}}, ""},
		"without a network":        {Spec{Ports: []Port{{Host: 8080, Container: 80}}}, "set the network to bridge"},
		"on none":                  {Spec{Network: Network{Mode: "none"}, Ports: []Port{{Host: 8080, Container: 80}}}, "set the network to bridge"},
		"on the host's network":    {Spec{Network: Network{Mode: "host"}, Ports: []Port{{Host: 8080, Container: 80}}}, "on the host's network"},
		"of no container port":     {Spec{Network: Network{Mode: "bridge"}, Ports: []Port{{Host: 8080, Container: 0}}}, "host 8080, container 0"},
		"that is too large":        {Spec{Network: Network{Mode: "bridge"}, Ports: []Port{{Host: 65536, Container: 80}}}, "host 65536"},
		"that are too many":        {Spec{Network: Network{Mode: "bridge"}, Ports: slices.Repeat([]Port{{Container: 80}}, MaxPorts+1)}, "1001 ports are too many: 1000 at most"},
		"that is negative":         {Spec{Network: Network{Mode: "bridge"}, Ports: []Port{{Host: -1, Container: 80}}}, "host -1"},
		"of both protocols":        {Spec{Network: Network{Mode: "bridge"}, Ports: []Port{{Host: 53, Container: 53}, {Host: 53, Container: 53, Protocol: "udp"}}}, ""},
		"of an unknown protocol":   {Spec{Network: Network{Mode: "bridge"}, Ports: []Port{{Container: 80, Protocol: "sctp"}}}, "unknown protocol \"sctp\""},
		"with an address":          {Spec{Network: Network{Mode: "bridge"}, Ports: []Port{{Container: 80, Address: "0.0.0.0"}}}, "loopback address"},
		"of the host, taken twice": {Spec{Network: Network{Mode: "bridge"}, Ports: []Port{{Host: 8080, Container: 80}, {Host: 8080, Container: 81}}}, "8080 of the host is published twice"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Validate()
			var e *Error
			switch {
			case c.want == "":
				if err != nil {
					t.Error(err)
				}
			case !errors.Is(err, ErrConfig) || !errors.As(err, &e) || !strings.Contains(e.Error()+e.Hint, c.want):
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestSpec_networkAllow(t *testing.T) {
	for _, mode := range []string{"", NetworkNone, NetworkBridge} {
		s := Spec{Network: Network{Mode: mode, Allow: []string{"pypi.org"}}}
		if err := s.Validate(); !errors.Is(err, ErrUnsupported) || s.Network.IsNone() {
			t.Errorf("%q: %v", mode, err)
		}
	}
}

func TestSpec_binary(t *testing.T) {
	for _, binary := range []string{"", "podman", "/opt/my docker/docker", `C:\docker.exe`} {
		if err := (&Spec{Binary: binary}).Validate(); err != nil {
			t.Errorf("%q: %v", binary, err)
		}
	}
	if err := (&Spec{Binary: "docker\x00"}).Validate(); !errors.Is(err, ErrConfig) {
		t.Errorf("got %v", err)
	}
}

func TestSpec_notText(t *testing.T) {
	const bad = "secret\xff"
	for name, spec := range map[string]Spec{
		"variable":            {Env: map[string]string{"A": bad}},
		"variable's name":     {Env: map[string]string{"\xff": "a"}},
		"user":                {User: bad},
		"folder":              {Dir: "/" + bad},
		"mount":               {Mounts: []Mount{{Host: "/" + bad}}},
		"project's variable":  {Compose: &Compose{Content: "{}", Env: map[string]string{"A": bad}}},
		"project's file":      {Compose: &Compose{Files: []string{bad}}},
		"another's variables": {Compose: &Compose{Content: "{}", HostEnv: []string{bad}}},
	} {
		err := spec.Validate()
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "not valid UTF-8") {
			t.Errorf("%s: %v", name, err)
		}
		if strings.Contains(name, "variable") && name != "another's variables" && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error quotes the value: %v", name, err)
		}
	}
	if err := (&Spec{Env: map[string]string{"A": "é\n"}}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (&Cmd{Args: []string{"a"}, Env: map[string]string{"A": bad}}).Validate(); err != nil {
		t.Errorf("a command's variable: %v", err)
	}
}

func TestSpec_compose(t *testing.T) {
	project := &Compose{Files: []string{"compose.yaml"}}
	for name, c := range map[string]struct {
		spec Spec
		want string // part of the error; empty means none
	}{
		"with NaN CPUs":        {Spec{Compose: project, Limits: Limits{CPUs: math.NaN()}}, "NaN is not a number up to 8192"},
		"with endless CPUs":    {Spec{Compose: project, Limits: Limits{CPUs: math.Inf(1)}}, "+Inf is not a number up to 8192"},
		"alone":                {Spec{Compose: project, Name: "a", Keep: true, Limits: Limits{Memory: 64 << 20}}, ""},
		"with a shm size":      {Spec{Compose: project, ShmSize: 1 << 20}, "ShmSize and Compose exclude each other"},
		"with a tiny disk":     {Spec{Compose: project, Limits: Limits{Disk: 1}}, "the disk limit 1 is not between"},
		"with a negative disk": {Spec{Compose: project, Limits: Limits{Disk: -2}}, "the disk limit -2 is negative"},
		"with a huge disk":     {Spec{Compose: project, Limits: Limits{Disk: 1 << 60}}, "is not between 1 MiB and 15 TiB"},
		"with many processes":  {Spec{Compose: project, Limits: Limits{PIDs: 1<<22 + 1}}, "the process limit 4194305 is above"},
		"with all processes":   {Spec{Compose: project, Limits: Limits{PIDs: 1 << 22}}, ""},
		"with an image":        {Spec{Compose: project, Image: "a"}, "Image and Compose exclude each other"},
		"with variables":       {Spec{Compose: project, Env: map[string]string{"A": "1"}}, "Env and Compose exclude"},
		"with a network":       {Spec{Compose: project, Network: Network{Mode: NetworkBridge}}, "Network and Compose exclude"},
		"with ports":           {Spec{Compose: project, Ports: []Port{{Container: 80}}}, "Ports and Compose exclude"},
		"with unsafe mounts":   {Spec{Compose: project, AllowUnsafe: true}, "set Compose.AllowUnsafe"},
		"of content":           {Spec{Compose: &Compose{Content: "services: {}"}}, ""},
		"of file and content":  {Spec{Compose: &Compose{Files: project.Files, Content: "services: {}"}}, "needs either files, content or a Dockerfile"},
		"of Dockerfile and it": {Spec{Compose: &Compose{Dockerfile: "Dockerfile", Content: "services: {}"}}, "needs either files, content or a Dockerfile"},
		"without a file":       {Spec{Compose: &Compose{}}, "needs either files"},
		"with another egress":  {Spec{Compose: &Compose{Files: project.Files, Egress: "lan"}}, "unknown egress \"lan\""},
		"with a bad variable":  {Spec{Compose: &Compose{Files: project.Files, Env: map[string]string{"A=": "1"}}}, "contains '='"},
		"with a bad host name": {Spec{Compose: &Compose{Files: project.Files, HostEnv: []string{"A=1"}}}, "invalid environment variable name"},
		"with no time":         {Spec{Compose: &Compose{Files: project.Files, ReadyTimeout: -1}}, "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.spec.Validate()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrConfig)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// fill sets all exported fields.
func fill(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.IsExported() && f.Type != reflect.TypeFor[*slog.Logger]() {
				fill(t, v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"a": "b"}))
	case reflect.String:
		v.SetString("<text>")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Int, reflect.Int64:
		v.SetInt(1_234_567_891)
	default:
		t.Fatalf("unexpected field type %s", v.Type())
	}
}

func TestSpec_JSON(t *testing.T) {
	var full Spec
	fill(t, reflect.ValueOf(&full).Elem())
	full.Mounts[0].Workspace = false // not part of the JSON
	for _, spec := range []Spec{full, {}, {TTL: -1500 * time.Millisecond, Compose: &Compose{}}} {
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		var again Spec
		if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, spec) {
			t.Errorf("got  %+v, %v\nwant %+v\nJSON %s", again, err, spec, text)
		}
	}
	if text, err := json.Marshal(Spec{}); err != nil || string(text) != "{}" {
		t.Errorf("the zero Spec is %s, %v", text, err)
	}
	logged := Spec{Logger: slog.New(slog.DiscardHandler), Image: "a", Network: Network{Mode: "b"}}
	if err := json.Unmarshal([]byte(`{"image": "c"}`), &logged); err != nil || logged.Logger == nil || logged.Image != "c" || logged.Network.Mode != "" {
		t.Errorf("decoding gives %+v, %v", logged, err)
	}
	for _, bad := range []string{`{"unknown": 1}`, `{"compose": {"unknown": 1}}`, `{"network": {"unknown": 1}}`, `{"ttl_ms": 1e300}`, `{"compose": {"pull_timeout_ms": 1e300}}`, `{"TTL": 1}`} {
		var spec Spec
		if err := json.Unmarshal([]byte(bad), &spec); err == nil {
			t.Errorf("%s decodes to %+v", bad, spec)
		}
	}
	for _, bad := range []Spec{{Mounts: []Mount{{Host: "/\xff"}}}, {Compose: &Compose{Files: []string{"\xff"}}}, {Env: map[string]string{"A": "\xff"}}, {Compose: &Compose{Env: map[string]string{"A": "\xff"}}}} {
		if text, err := json.Marshal(bad); err == nil {
			t.Errorf("invalid UTF-8 is encoded: %s", text)
		}
	}
}
