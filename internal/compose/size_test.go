package compose

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

// doubling returns a file of variables whose last one is 2^40 times as long as the first.
func doubling(line string) string {
	text := "A0=" + strings.Repeat("x", 64) + "\n"
	for i := range 40 {
		text += fmt.Sprintf(line, i+1, i) + "\n"
	}
	return text
}

func TestLoad_size(t *testing.T) {
	const twice, one = "A%d=${A%[2]d}$A%[2]d", "services: {a: {image: i, command: \"$A40\"}}\n"
	extending := "services:\n  s0: {image: i, environment: {B: $L}}\n"
	for i := range 1900 {
		extending += fmt.Sprintf("  s%d: {extends: s%d}\n", i+1, i)
	}
	chain := "services:\n"
	for i := range 1900 {
		chain += fmt.Sprintf("  s%d: {extends: s%d}\n", i+1, i)
	}
	long := "L=" + strings.Repeat("x", 1<<20) + "\n"
	for name, c := range map[string]struct {
		files map[string]string
		says  string
	}{
		"variables that double":          {map[string]string{"compose.yaml": one, ".env": doubling(twice)}, ".env: the expanded project exceeds"},
		"in quotes":                      {map[string]string{"compose.yaml": one, ".env": doubling("A%d=\"\n${A%[2]d}\n$A%[2]d\"")}, ".env: the expanded project exceeds"},
		"with escapes":                   {map[string]string{"compose.yaml": one, ".env": doubling(`A%d="\0044A%[2]d$\0101%[2]d"`)}, ".env: the expanded project exceeds"},
		"after a default":                {map[string]string{"compose.yaml": one, ".env": doubling("export A%d : ${X:-${A%[2]d}$A%[2]d}")}, ".env: the expanded project exceeds"},
		"on one line":                    {map[string]string{"compose.yaml": one, ".env": strings.ReplaceAll(doubling(`A%d="$A%[2]d$A%[2]d"`), "\"\n", "\" ")}, ".env: the expanded project exceeds"},
		"of a service":                   {map[string]string{"compose.yaml": "services: {a: {image: i, env_file: vars}}", "vars": doubling(twice)}, "vars: the expanded project exceeds"},
		"labels that double":             {map[string]string{"compose.yaml": "services: {a: {image: i, label_file: vars}}", "vars": doubling(twice)}, "vars: the expanded project exceeds"},
		"of an included file":            {map[string]string{"compose.yaml": "include: [{path: other.yaml, env_file: vars}]", "other.yaml": one, "vars": doubling(twice)}, "vars: the expanded project exceeds"},
		"a long variable often":          {map[string]string{"compose.yaml": "services: {a: {image: i, command: \"" + strings.Repeat("$L ", 1000) + "\"}}", ".env": long}, "compose.yaml: the expanded project exceeds"},
		"a long variable by an alias":    {map[string]string{"compose.yaml": "x-a: &a [\"$L\"]\nx-b: [" + strings.Repeat("*a, ", 1000) + "]\nservices: {a: {image: i}}", ".env": long}, "compose.yaml: the expanded project exceeds"},
		"services extend each other":     {map[string]string{"compose.yaml": extending, ".env": long}, "compose.yaml: the expanded project exceeds"},
		"a file per service":             {map[string]string{"compose.yaml": manyServices(200, "env_file: vars"), "vars": long}, "vars: the expanded project exceeds"},
		"escapes in a second file":       {map[string]string{"compose.yaml": "services: {a: {image: i, env_file: [vars, more]}}", "vars": "A=" + long[2:], "more": "B=\"" + strings.Repeat(`\0044A`, 1000) + "\""}, "more: the expanded project exceeds"},
		"names of variables alone":       {map[string]string{"compose.yaml": manyServices(100, "environment: [L]"), ".env": long}, "compose.yaml: the expanded project exceeds"},
		"and by another variable":        {map[string]string{"compose.yaml": manyServices(100, "build: {context: ., args: [$N]}"), ".env": "N=L\n" + long}, "compose.yaml: the expanded project exceeds"},
		"and without a value":            {map[string]string{"compose.yaml": manyServices(100, "environment: {L: }"), ".env": long}, "compose.yaml: the expanded project exceeds"},
		"services extend an include":     {map[string]string{"compose.yaml": "include: [other.yaml]\n" + manyServices(1000, "extends: big"), "other.yaml": "services: {big: {image: i, labels: [" + strings.Repeat("x, ", 2000) + "]}}"}, "compose.yaml: the expanded project exceeds"},
		"services of two documents":      {map[string]string{"compose.yaml": "services: {a: {extends: {file: other.yaml, service: s1900}}}", "other.yaml": "services: {s0: {image: i, labels: [" + strings.Repeat("x, ", 2000) + "]}}\n---\n" + chain}, "other.yaml: the expanded project exceeds"},
		"many documents":                 {map[string]string{"compose.yaml": one + strings.Repeat("\n---\nx-a: b", 2000)}, "compose.yaml: the expanded project exceeds"},
		"a few documents of a large one": {map[string]string{"compose.yaml": manyServices(1000, "x-a: b") + strings.Repeat("\n---\n{}", 500)}, "compose.yaml: the expanded project exceeds"},
		"a one-line file per service":    {map[string]string{"compose.yaml": manyServices(200, "env_file: vars"), "vars": strings.Repeat("a", 1<<20)}, "vars: the expanded project exceeds"},
		"defaults within defaults":       {map[string]string{"compose.yaml": "services: {a: {image: i, command: \"" + strings.Repeat("${A-}", 50_000) + "\"}}"}, "compose.yaml: the expanded project exceeds"},
		"a few thousand defaults":        {map[string]string{"compose.yaml": "services: {a: {image: i, command: \"" + strings.Repeat("${A-}", 14_000) + "\"}}"}, "compose.yaml: the expanded project exceeds"},
		"alternatives":                   {map[string]string{"compose.yaml": "services: {a: {image: i, command: \"" + strings.Repeat("${A:+x}", 11_000) + "\"}}"}, "compose.yaml: the expanded project exceeds"},
		"lists within lists":             {map[string]string{"compose.yaml": "x-a: " + strings.Repeat("[", 101) + strings.Repeat("]", 101) + "\nservices: {a: {image: i}}"}, "nested more than 100 levels deep"},
		"mappings within aliases":        {map[string]string{"compose.yaml": "x-a: &a {a: {a: {}}}\n" + aliases(60) + "services: {a: {image: i}}"}, "nested more than 100 levels deep"},
		"long lists":                     {map[string]string{"compose.yaml": "services: {a: {image: i, command: [" + strings.Repeat("x, ", 90_000) + "]}}"}, "compose.yaml: the expanded project exceeds"},
		"ports of a few services":        {map[string]string{"compose.yaml": "services: {a: {image: i, ports: ['$P']}, b: {image: i, ports: ['$P']}}", ".env": "P=1-65535:1-65535\n"}, "compose.yaml: the expanded project exceeds"},
		"ports of many services":         {map[string]string{"compose.yaml": manyServices(1000, "ports: ['1-1000']")}, "compose.yaml: the expanded project exceeds"},
		"references within references":   {map[string]string{"compose.yaml": "services: {a: {image: i, env_file: \"" + strings.Repeat("${A:-", 101) + strings.Repeat("}", 101) + "\"}}"}, "compose.yaml: the expanded project exceeds"},
		"and in a file of variables":     {map[string]string{"compose.yaml": one, ".env": "A=\"" + strings.Repeat("${B:-", 5000) + "x" + strings.Repeat("}", 5000) + "\""}, ".env: the expanded project exceeds"},
		"many services":                  {map[string]string{"compose.yaml": manyServices(2001, "x-a: b")}, "there are more than 2000 services"},
		"many services of two files":     {map[string]string{"compose.yaml": "include: [other.yaml]\n" + manyServices(1000, "x-a: b"), "other.yaml": strings.ReplaceAll(manyServices(1001, "x-a: b"), "  s", "  t")}, "there are more than 2000 services"},
		"many networks":                  {map[string]string{"compose.yaml": one + "networks: {" + numbered(2001) + "}"}, "there are more than 2000 networks"},
		"many volumes":                   {map[string]string{"compose.yaml": one + "volumes: {" + numbered(2001) + "}"}, "there are more than 2000 volumes"},
		"many configs of two documents":  {map[string]string{"compose.yaml": one + "configs: {" + numbered(1001) + "}\n---\nconfigs: {" + numbered(1000) + "}"}, "there are more than 2000 configs"},
		"ports":                          {map[string]string{"compose.yaml": "services: {a: {image: i, ports: ['8000-8999', 9000]}}"}, "services.a.ports: 1001 ports of one service are too many: 1000 at most"},
		"ports that are exposed":         {map[string]string{"compose.yaml": "services: {a: {image: i, expose: ['1-900', '1000-1900/udp']}}"}, "services.a.expose: 1801 ports of one service are too many"},
		"a limit beyond all integers":    {map[string]string{"compose.yaml": "services: {a: {image: i, mem_limit: 99999999999999999999g}}"}, "services.a.mem_limit: -9223372036854775808 bytes is not a valid size"},
		"a limit of deploy beyond them":  {map[string]string{"compose.yaml": "services: {a: {image: i, deploy: {resources: {limits: {memory: 99999999999999999999g}}}}}"}, "services.a.deploy.resources.limits.memory: -9223372036854775808 bytes is not a valid size"},
		"too little memory":              {map[string]string{"compose.yaml": "services: {a: {image: i, mem_limit: 1m}}"}, "services.a.mem_limit: 1048576 bytes is below the minimum of 6291456 (6 MiB)"},
		"too few processes":              {map[string]string{"compose.yaml": "services:\n  a:\n    image: i\n    pids_limit: 5"}, "compose.yaml:4: services.a.pids_limit: 5 is below the minimum of 48"},
		"too little of both in deploy":   {map[string]string{"compose.yaml": "services: {a: {image: i, deploy: {resources: {limits: {memory: 5m, pids: 47}}}}}"}, "services.a.deploy.resources.limits.pids: 47 is below the minimum of 48"},
		"CPUs beyond all machines":       {map[string]string{"compose.yaml": "services: {a: {image: i, cpus: 1e30}}"}, "services.a.cpus: 1e+30 is not a number of CPUs from 0 to 8192"},
		"CPUs that are no number":        {map[string]string{"compose.yaml": "services: {a: {image: i, deploy: {resources: {limits: {cpus: nan}}}}}"}, "services.a.deploy.resources.limits.cpus: NaN is not a number of CPUs"},
		"ports with extended ones":       {map[string]string{"compose.yaml": "services: {a: {extends: b, ports: ['1-900']}, b: {image: i, ports: ['1000-1900']}}"}, "services.a.ports: 1801 ports of one service are too many"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filetest.Lay(t, c.files)
			_, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}})
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// manyServices returns a Compose file with n services that have the same keys.
func manyServices(n int, keys string) string {
	text := "services:\n"
	for i := range n {
		text += fmt.Sprintf("  s%d: {image: i, %s}\n", i, keys)
	}
	return text
}

// numbered returns the entries of a mapping with n keys.
func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "n%d: {}, ", i)
	}
	return b.String()
}

// aliases returns lines of which each has the value of the one before in two more levels.
func aliases(n int) string {
	text, last := "", "a"
	for i := range n {
		text += fmt.Sprintf("x-%d: &b%d [[*%s]]\n", i, i, last)
		last = fmt.Sprintf("b%d", i)
	}
	return text
}

func TestLoad_sizeAllowed(t *testing.T) {
	vars := ""
	for i := range 100 {
		vars += fmt.Sprintf("V%d=\"${V%d}/of ${BASE} $BASE\"\n", i, i/2)
	}
	dir := filetest.Lay(t, map[string]string{
		"compose.yaml": manyServices(20, "env_file: vars, ports: ['8000-8099'], command: \"$V1 $V2 $$V3\""), ".env": "BASE=/srv\n" + vars, "vars": "BASE=x\n" + vars,
	})
	if _, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}}); err != nil {
		t.Error(err)
	}
	dir = filetest.Lay(t, map[string]string{"compose.yaml": "services: {a: {image: i}, turn: {image: i, profiles: [turn], ports: ['49152-65535:49152-65535/udp']}}"})
	if _, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}}); err != nil {
		t.Errorf("ports of a service that is not started: %v", err)
	}
}

// FuzzVariables checks that no variable becomes longer than its estimate.
func FuzzVariables(f *testing.F) {
	for _, seed := range []string{
		"A=1\nB=$A$A # c\n", "export A: \"x\\\"$E\\n\" B='$E' C=${A:-$B$E}\n", "A=\"\\0044E\\0101\"\nB=\"$\\0105$A\"", "E\nA=$E$E\nexport\nB=\"a\nb\"C=$A",
		"\uFEFFA=$E\nB=${A}${A}\n", "#\n A = \u00a0'x' \nB.b[0]=$A", "A=${E:+$E$E}\nA=$A$A\nB=$A", "a=\\$E$$E",
	} {
		f.Add(seed)
	}
	env := map[string]string{"E": strings.Repeat("e", 100)}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 { // limits how often it can double
			t.Skip()
		}
		sizes := map[string]int{}
		total := variables(text, env, sizes)
		if total > maxSize {
			t.Skip()
		}
		got, err := dotenv.ParseWithLookup(strings.NewReader(text), func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		if err != nil {
			return
		}
		for name, value := range got {
			if len(value) > sizes[name] {
				t.Errorf("%q: %s has %d bytes, estimate %d", text, name, len(value), sizes[name])
			}
		}
	})
}
