package docker_test

import (
	"bytes"
	"cmp"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/files"
	"github.com/fumehood/fumehood/internal/guest/guestbin"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// genuineGuest returns the guest's program.
func genuineGuest(t *testing.T) []byte {
	t.Helper()
	guest, err := guestbin.For(t.Context(), runtime.GOARCH, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	program, err := guest.Program()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// forged returns a guest that reports the size 0 for each file.
func forged(t *testing.T) []byte {
	t.Helper()
	genuine := genuineGuest(t)
	lies := bytes.ReplaceAll(genuine, []byte(`json:"size"`), []byte(`json:"siz_"`))
	if bytes.Equal(lies, genuine) {
		t.Fatal("the guest's messages have no size")
	}
	return lies
}

// A project mounts another guest by links in its image, in its folder, in its volumes, and in what a program changed
// before the Engine started it again. Each attempt must be rejected.
func TestGuest_mountedOver(t *testing.T) {
	t.Parallel()
	tier.NeedDocker(t)
	lies := forged(t)
	const own = ".fumehood"
	quick := []string{"through proc", "through a shared volume", "after a restart", "a volume in a folder"}
	for name, c := range map[string]struct {
		image   []string // additional files of the image
		links   []string // in the project's folder: name, target
		project string
		service string
		passes  bool
	}{
		"through proc": {image: []string{"x", "-> /proc/self/root/" + own}, project: "volumes: ['./evil:/x/guest:ro']"},
		"through proc/1": {
			image: []string{"x", "-> /proc/1/root/" + own}, project: "volumes: ['./evil:/x/guest:ro']",
		},
		"through a thread of proc": {
			image: []string{"x", "-> y", "y", "-> ./proc/thread-self/root/" + own + "/guest"}, project: "volumes: ['./evil:/x:ro']",
		},
		"through proc and back": {
			image:   []string{"a/", "", "a/b", "-> /1/2/3/4", "1/", "", "1/2/", "", "1/2/3/", "", "1/2/3/4/", "", "1/y", "-> /" + own, "y/", "", "x", "-> /proc/self/cwd/a/b/../../../y"},
			project: "volumes: ['./evil:/x/guest:ro']",
		},
		"through sys": {
			image:   []string{"y/", "", "y/x", "-> /sys/class/net/lo/../../../../class/../../.fumehood", "class", "-> /a/b/c", "a/", "", "a/b/", "", "a/b/c/", "", "a/.fumehood/", ""},
			project: "volumes: ['./evil:/y/x/guest:ro']",
		},
		"inside a mount at sys": {
			links: []string{"sys/l", "/" + own}, project: "volumes: ['./sys:/sys:ro', './evil:/sys/l/guest:ro']",
		},
		"by hosts of a shared network": {
			links: []string{"etc/hosts", "/" + own + "/guest"},
			project: "network_mode: 'service:swap'\n    volumes: ['./etc:/etc:ro']\n    depends_on: {swap: {condition: service_healthy}}\n  swap:\n    image: IMAGE\n" +
				"    entrypoint: [/bin/sh, -c, 'cat /evil >/etc/hosts; chmod 755 /etc/hosts; touch /done; sleep 1000']\n    volumes: ['./evil:/evil:ro']\n" +
				"    healthcheck: {test: [CMD, /bin/busybox, test, -e, /done], interval: 200ms, retries: 100}",
		},
		"through dev": {image: []string{"x", "-> /dev/fd/../root/" + own}, project: "volumes: ['./evil:/x/guest:ro']"},
		"a volume over the host folder": {
			image: []string{"x", "-> /proc/self/root/" + own}, project: "volumes: ['vol:/x/host']\nvolumes: {vol: {}}",
		},
		"a tmpfs over the guest folder": {
			image:   []string{"x", "-> /proc/self/root/" + own},
			project: "tmpfs: [\"/x:exec\"]\n    entrypoint: [/bin/sh, -c, 'cat /evil >/.fumehood/guest; chmod 755 /.fumehood/guest; sleep 1000']\n    volumes: ['./evil:/evil:ro']",
		},
		"by a link in the project": {
			links: []string{"dir/m", "/proc/self/root/" + own}, project: "volumes: ['./dir:/v:ro', './evil:/v/m/guest:ro']",
		},
		"by an image's link to a volume": {
			image:   []string{"x", "-> /v/l", "v/", "", "v/l", "-> /" + own},
			project: "volumes: ['vol:/v', './evil:/x/guest:ro']\n    depends_on: {swap: {condition: service_completed_successfully}}\n  swap:\n    image: IMAGE\n    command: [/bin/sh, -c, 'rm /v/l; mkdir /v/l']\n    volumes: ['vol:/v']\nvolumes: {vol: {}}",
		},
		"through a shared volume": {
			project: "volumes: ['vol:/v', './evil:/v/l/guest:ro']\n    depends_on: {swap: {condition: service_completed_successfully}}\n  swap:\n    image: IMAGE\n    command: [/bin/sh, -c, 'rm -rf /v/l; ln -s /.fumehood /v/l']\n    volumes: ['vol:/v']\nvolumes: {vol: {}}",
		},
		"after a restart": {
			service: "again",
			project: "depends_on: {again: {condition: service_healthy}}\n  again:\n    image: IMAGE\n    restart: always\n    volumes: ['./evil:/data/x:ro']\n    entrypoint: [/bin/sh, -c, 'test -e /once || { touch /once; mv /data /d; mkdir /data; ln -s /.fumehood/guest /data/x; exit 1; }; touch /again; sleep 1000']\n    healthcheck: {test: [CMD, /bin/busybox, test, -e, /again], interval: 200ms, retries: 100}",
		},

		"a volume in a folder": {
			links: []string{"app/modules/l", "/nowhere"}, passes: true,
			project: "volumes: ['./app:/app:ro', 'vol:/app/modules', './evil:/app/modules/evil:ro']\n  other:\n    image: IMAGE\n    command: [/bin/sh, -c, 'sleep 1000']\n    volumes: ['vol:/v:ro', './app:/app:ro']\nvolumes: {vol: {}}",
		},
		"by a link to what is no mount": {
			image: []string{"var/", "", "run/", "", "var/run", "-> ../run"}, passes: true,
			project: "volumes: ['vol:/var/run/v', './evil:/var/run/evil:ro']\n    tmpfs: [/dev/shm, /var/run/t]\nvolumes: {vol: {}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(quick, name) {
				tier.Need(t, tier.CI)
			}
			d, version := newRawDaemon(t), guestVersion(t)
			d.importImage("fumehood-test/covered", version, tree(t, slices.Concat(
				[]string{"bin/", "", "bin/busybox", busyboxProgram(d), "bin/sh", "-> busybox"}, c.image)...), "ENV PATH=/bin", `CMD ["busybox", "sleep", "infinity"]`)
			for _, tool := range []string{"cat", "chmod", "ln", "mkdir", "mv", "rm", "sleep", "touch"} {
				c.project = strings.ReplaceAll(c.project, "; "+tool+" ", "; busybox "+tool+" ")
				c.project = strings.ReplaceAll(c.project, "'"+tool+" ", "'busybox "+tool+" ")
			}
			image := "fumehood-test/covered:" + version
			comp := project(t, strings.ReplaceAll("services:\n  default:\n    image: IMAGE\n    "+c.project, "IMAGE", image))
			dir := filepath.Dir(comp.Files[0])
			if err := files.WriteProgram(filepath.Join(dir, "evil"), lies, 0o755); err != nil { //nolint:gosec // it is to be run
				t.Fatal(err)
			}
			for i := 0; i < len(c.links); i += 2 {
				link := filepath.Join(dir, c.links[i])
				if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(c.links[i+1], link)); err != nil { //nolint:gosec // others read it
					t.Fatal(err)
				}
			}
			size, err := func() (int64, error) {
				sb, err := newProvider(t, docker.Options{}).Start(t.Context(), fumehood.Spec{Compose: comp})
				if err != nil {
					return 0, err
				}
				defer func() {
					if err := sb.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}()
				svc, err := sb.Lookup(cmp.Or(c.service, "default"))
				if err != nil {
					return 0, err
				}
				info, err := svc.Stat(t.Context(), "/bin/busybox")
				if err != nil {
					return 0, err
				}
				return info.Size, nil
			}()
			switch {
			case err != nil && c.passes:
				t.Error(err)
			case c.passes && size == 0:
				t.Error("another guest runs: a file has no size")
			case c.passes:
			case err == nil:
				t.Errorf("the sandbox started; the size of a file is %d", size)
			case !strings.Contains(err.Error(), "could cover /.fumehood") && !strings.Contains(err.Error(), "was started again"):
				t.Error(err)
			}
		})
	}
}
