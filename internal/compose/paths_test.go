//go:build unix

package compose

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
)

// A project reads no file outside its folder unless the user allows it, whichever key names it and whatever links lead
// there.
func TestLoad_outsidePaths(t *testing.T) {
	const good = "services: {a: {image: i}}\n"
	for name, tt := range map[string]struct {
		files map[string]string // OUT stands for a folder outside the project, TOP for the one above both
		links map[string]string
	}{
		"the folder's .env by a link":   {map[string]string{"compose.yaml": good}, map[string]string{".env": "OUT/vars"}},
		"env_file":                      {map[string]string{"compose.yaml": "services: {a: {image: i, env_file: OUT/vars}}"}, nil},
		"env_file above":                {map[string]string{"compose.yaml": "services: {a: {image: i, env_file: ../out/vars}}"}, nil},
		"env_file as a list":            {map[string]string{"compose.yaml": "services: {a: {image: i, env_file: [{path: OUT/vars, required: false}]}}"}, nil},
		"env_file by a link":            {map[string]string{"compose.yaml": "services: {a: {image: i, env_file: vars}}"}, map[string]string{"vars": "OUT/vars"}},
		"env_file above a link":         {map[string]string{"compose.yaml": "services: {a: {image: i, env_file: TOP/project/link/../vars}}"}, map[string]string{"link": "OUT/sub"}},
		"include above a link":          {map[string]string{"compose.yaml": good + "include: [TOP/project/link/../compose.yaml]"}, map[string]string{"link": "OUT/sub"}},
		"extends above a link":          {map[string]string{"compose.yaml": "services: {a: {extends: {file: TOP/project/link/../compose.yaml, service: out}}}"}, map[string]string{"link": "OUT/sub"}},
		"a build above a link":          {map[string]string{"compose.yaml": "services: {a: {build: TOP/project/link/..}}", "Dockerfile": "FROM scratch"}, map[string]string{"link": "OUT/sub"}},
		"label_file":                    {map[string]string{"compose.yaml": "services: {a: {image: i, label_file: OUT/vars}}"}, nil},
		"include":                       {map[string]string{"compose.yaml": good + "include: [OUT/compose.yaml]"}, nil},
		"include as a list":             {map[string]string{"compose.yaml": good + "include: [{path: [OUT/compose.yaml]}]"}, nil},
		"include by a link":             {map[string]string{"compose.yaml": good + "include: [sub/compose.yaml]"}, map[string]string{"sub": "OUT"}},
		"include by a variable":         {map[string]string{"compose.yaml": good + "include: ['${WHERE}']", ".env": "WHERE=OUT/compose.yaml"}, nil},
		"include in a second document":  {map[string]string{"compose.yaml": good + "include: [OUT/compose.yaml]\n---\ninclude: !reset null\n"}, nil},
		"include by a merge key":        {map[string]string{"compose.yaml": "x-all: &all {include: [OUT/compose.yaml]}\n<<: *all\n" + good}, nil},
		"include that a reset reveals":  {map[string]string{"compose.yaml": "x-all: &all {include: [OUT/compose.yaml]}\ninclude: !reset null\n<<: *all\n" + good}, nil},
		"include by a list's reset":     {map[string]string{"compose.yaml": "x-all: &all [{include: [OUT/compose.yaml]}]\ninclude: !reset []\n<<: *all\n" + good}, nil},
		"include by the project's name": {map[string]string{"compose.yaml": good + "include: ['${COMPOSE_PROJECT_NAME:+OUT/compose.yaml}']"}, nil},
		"include of an include":         {map[string]string{"compose.yaml": good + "include: [sub/compose.yaml]", "sub/compose.yaml": "services: {b: {image: i}}\ninclude: [../../out/compose.yaml]"}, nil},
		"an include's folder":           {map[string]string{"compose.yaml": good + "include: [{path: sub.yaml, project_directory: OUT}]", "sub.yaml": "services: {b: {image: i, env_file: vars}}"}, nil},
		"an include's env_file":         {map[string]string{"compose.yaml": good + "include: [{path: sub.yaml, env_file: OUT/vars}]", "sub.yaml": "services: {b: {image: i}}"}, nil},
		"an include's .env by a link":   {map[string]string{"compose.yaml": good + "include: [sub/compose.yaml]", "sub/compose.yaml": "services: {b: {image: i}}"}, map[string]string{"sub/.env": "OUT/vars"}},
		"and with an empty env_file":    {map[string]string{"compose.yaml": good + "include: [{path: sub/compose.yaml, env_file: [], project_directory: '${NONE}'}]", "sub/compose.yaml": "services: {b: {image: i}}"}, map[string]string{"sub/.env": "OUT/vars"}},
		"an include's variable":         {map[string]string{"compose.yaml": good + "include: [{path: sub.yaml, env_file: vars}]", "vars": "WHERE=OUT/compose.yaml", "sub.yaml": "services: {b: {extends: {file: '${WHERE}', service: out}}}"}, nil},
		"extends":                       {map[string]string{"compose.yaml": "services: {a: {extends: {file: OUT/compose.yaml, service: out}}}"}, nil},
		"extends by a link":             {map[string]string{"compose.yaml": "services: {a: {extends: {file: x.yaml, service: out}}}"}, map[string]string{"x.yaml": "OUT/compose.yaml"}},
		"extends of an extends":         {map[string]string{"compose.yaml": "services: {a: {extends: {file: sub/x.yaml, service: b}}}", "sub/x.yaml": "services: {b: {extends: {file: ../../out/compose.yaml, service: out}}}"}, nil},
		"extends in an include":         {map[string]string{"compose.yaml": good + "include: [sub/x.yaml]", "sub/x.yaml": "services: {b: {extends: {file: ../../out/compose.yaml, service: out}}}"}, nil},
		"extends by a merge key":        {map[string]string{"compose.yaml": "x-all: &all {extends: {file: OUT/compose.yaml, service: out}}\nservices: {a: {<<: *all}}"}, nil},
		"a build":                       {map[string]string{"compose.yaml": "services: {a: {build: OUT}}"}, nil},
		"a build of a link":             {map[string]string{"compose.yaml": "services: {a: {build: sub}}"}, map[string]string{"sub": "OUT"}},
		"a Dockerfile":                  {map[string]string{"compose.yaml": "services: {a: {build: {context: ., dockerfile: OUT/Dockerfile}}}"}, nil},
		"a Dockerfile by a link":        {map[string]string{"compose.yaml": "services: {a: {build: {context: .}}}"}, map[string]string{"Dockerfile": "OUT/Dockerfile"}},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			out := project(t, map[string]string{"vars": "SEEN=1\n", "compose.yaml": "services: {out: {image: i}}\n", "Dockerfile": "FROM scratch\n", "sub/x": ""})
			if err := os.Rename(out, filepath.Join(top, "out")); err != nil {
				t.Fatal(err)
			}
			out = filepath.Join(top, "out")
			for file, content := range tt.files {
				tt.files[file] = strings.NewReplacer("OUT", out, "TOP", top).Replace(content)
			}
			dir := project(t, tt.files)
			if err := os.Rename(dir, filepath.Join(top, "project")); err != nil {
				t.Fatal(err)
			}
			dir = filepath.Join(top, "project")
			for file, target := range tt.links {
				if err := os.Symlink(strings.ReplaceAll(target, "OUT", out), filepath.Join(dir, file)); err != nil {
					t.Fatal(err)
				}
			}
			src := fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}}
			_, err := Load(t.Context(), "box", src)
			if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "--allow-read") {
				t.Errorf("got %v", err)
			}
			src.AllowRead = []string{out}
			if _, err := Load(t.Context(), "box", src); err != nil {
				t.Errorf("allowed: %v", err)
			}
		})
	}
}

// compose-go joins some paths of nested includes with this process's folder, and others with the including file's.
func TestLoad_nestedIncludes(t *testing.T) {
	top := project(t, map[string]string{
		"out/vars":                 "SEEN=outside\n",
		"project/compose.yaml":     "services: {a: {image: i}}\ninclude: [sub/a.yaml]\n",
		"project/sub/a.yaml":       "include: [{path: b.yaml, project_directory: pd}]\n",
		"project/sub/b.yaml":       "include: [{path: c.yaml, env_file: ../../out/vars}]\n",
		"project/sub/pd/c.yaml":    "services: {c: {image: i, environment: {SEEN: '${SEEN}'}}}\n",
		"project/sub/pd/out/vars":  "SEEN=inside\n",
		"project/out/vars":         "SEEN=inside\n",
		"project/pd/compose.yaml":  "services: {}\n",
		"project/sub/out/vars":     "SEEN=inside\n",
		"project/sub/pd/sub/x.txt": "",
	})
	t.Chdir(filepath.Join(top, "project"))
	src := fumehood.Compose{Files: []string{"compose.yaml"}}
	if _, err := Load(t.Context(), "box", src); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "--allow-read") {
		t.Errorf("got %v", err)
	}
	src.AllowRead = []string{filepath.Join(top, "out")}
	p, err := Load(t.Context(), "box", src)
	if err != nil {
		t.Fatal(err)
	}
	if got := env(t, p, "c", "SEEN"); got != "outside" {
		t.Errorf("compose-go read a file that was not checked: %s", got)
	}
}

func TestLoad_home(t *testing.T) {
	dir := project(t, map[string]string{".ssh/key": "", "src/a": ""})
	t.Setenv("HOME", dir)
	if err := os.Symlink("/proc/self/cwd", filepath.Join(dir, "src", "cwd")); err != nil {
		t.Fatal(err)
	}
	for part, safe := range map[string]bool{
		"volumes: ['./src:/x:ro']": true, "volumes: ['./.ssh:/x:ro']": false, "volumes: ['.:/x:ro']": false, "volumes: ['./src/cwd:/x:ro']": false,
		"secrets: [key]": false,
	} {
		text := "services: {a: {image: i, " + part + "}}\nsecrets: {key: {file: ./.ssh/key}}\n"
		file := filepath.Join(dir, "compose.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run(part, func(t *testing.T) {
			_, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{file}})
			if safe != (err == nil) || err != nil && !strings.Contains(err.Error(), "this is not safe") {
				t.Errorf("got %v", err)
			}
			if _, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{file}, AllowUnsafe: true}); err != nil {
				t.Errorf("allowed: %v", err)
			}
		})
	}
}

// Files that a project names are read only if they are regular files of bounded size. Reading never blocks.
func TestLoad_specialFiles(t *testing.T) {
	for _, key := range []string{"env_file: PATH", "label_file: PATH", "extends: {file: PATH, service: b}", "include", ".env", "include's .env"} {
		for name, make := range map[string]func(path string) error{
			"a FIFO":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
			"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
			"much":     func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("#", maxFile+1)), 0o600) },
		} {
			t.Run(key+"/"+name, func(t *testing.T) {
				file := "services: {a: {image: i, " + key + "}}\n"
				files, at := map[string]string{}, "x"
				switch key {
				case "include":
					file = "services: {a: {image: i}}\ninclude: [PATH]\n"
				case ".env":
					file, at = "services: {a: {image: i}}\n", ".env"
				case "include's .env":
					file, at = "services: {a: {image: i}}\ninclude: [sub/x.yaml]\n", "sub/.env"
					files["sub/x.yaml"] = "services: {b: {image: i}}\n"
				}
				if at != "x" && name == "a folder" {
					t.Skip("no variables are in a folder .env, as with Compose")
				}
				files["compose.yaml"] = strings.ReplaceAll(file, "PATH", "x")
				dir := project(t, files)
				if err := make(filepath.Join(dir, at)); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := Load(ctx, "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}, AllowRead: []string{"/dev/zero"}})
				if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), at) {
					t.Errorf("got %v", err)
				}
			})
		}
	}
}

func TestLoad_aliases(t *testing.T) {
	bomb := "x-0: &l0 [a, a, a, a, a, a, a, a, a, a]\n"
	for _, n := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		before := string(n[0] - 1)
		bomb += "x-" + n + ": &l" + n + " [" + strings.TrimSuffix(strings.Repeat("*l"+before+", ", 10), ", ") + "]\n"
	}
	bomb += "services: {a: {image: i}}\n"
	for name, files := range map[string]map[string]string{
		"the file":   {"compose.yaml": bomb},
		"an include": {"compose.yaml": "services: {b: {image: i}}\ninclude: [x.yaml]\n", "x.yaml": bomb},
	} {
		_, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(project(t, files), "compose.yaml")}})
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "values") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := load(t, "x-a: &a [*a]\nservices: {a: {image: i}}\n", fumehood.Compose{}); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("a list that contains itself: got %v", err)
	}
}

func TestLoad_hints(t *testing.T) {
	const read, unsafe = "--allow-read", "--allow-unsafe"
	outside := t.TempDir()
	for name, tt := range map[string]struct {
		file string
		want []string
	}{
		"a folder, read-only":      {"services: {a: {image: i, volumes: ['OUT:/x:ro']}}", []string{read}},
		"a secret's file":          {"services: {a: {image: i, secrets: [s]}}\nsecrets: {s: {file: OUT/x}}", []string{read}},
		"a folder, writable":       {"services: {a: {image: i, volumes: ['OUT:/x']}}", []string{unsafe}},
		"the host's settings":      {"services: {a: {image: i, volumes: ['/etc:/x:ro']}}", []string{unsafe}},
		"a secret of the host":     {"services: {a: {image: i, secrets: [s]}}\nsecrets: {s: {file: /etc/shadow}}", []string{unsafe}},
		"a folder, and privileges": {"services: {a: {image: i, privileged: true, volumes: ['OUT:/x:ro']}}", []string{read, unsafe}},
		"nothing that can be":      {"services: {a: {image: i, tmpfs: [/]}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := project(t, map[string]string{"compose.yaml": strings.ReplaceAll(tt.file, "OUT", outside)})
			_, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{filepath.Join(dir, "compose.yaml")}})
			var detail *fumehood.Error
			if !errors.As(err, &detail) {
				t.Fatalf("got %v", err)
			}
			for _, flag := range []string{read, unsafe} {
				if got, want := strings.Contains(detail.Hint, flag), slices.Contains(tt.want, flag); got != want {
					t.Errorf("%s in the hint is %v, want %v: %v", flag, got, want, err)
				}
			}
		})
	}
}
