package hostpath

import (
	"cmp"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/fumehood/fumehood/internal/owner"
)

// sockets are the names of sockets that give access to the host, wherever they are.
var sockets = []string{"docker.sock", "containerd.sock", "podman.sock", "crio.sock", "buildkitd.sock", "docker.raw.sock", "docker_engine"}

const (
	whySocket  = "who has the Docker socket has the host"
	whyKeys    = "it holds keys and settings of a user"
	whyState   = "it holds the files of other sandboxes"
	whyDevice  = "it is a device or a socket of the host"
	whyRun     = "it holds sockets of the host, the Docker socket among them"
	whySystem  = "the host executes what is in it"
	whyStartup = "the host executes it when the user logs in"
)

// place is a path that no sandbox may see, including everything below it and the folders above it.
type place struct {
	path     string
	why      string
	writable bool // rejected only for a writable mount
}

// unix are the places of Linux and macOS.
var unix = []place{
	{path: "/etc", why: "it holds the host's settings"},
	{path: "/proc", why: "it shows the host's processes"},
	{path: "/sys", why: "it shows the host's kernel and devices"},
	{path: "/dev", why: "it holds the host's devices"},
	{path: "/boot", why: "it holds the host's kernel"},
	{path: "/run", why: whyRun},
	{path: "/var/run", why: whyRun},
	{path: "/var/lib/docker", why: "it holds the containers of the host"},
	{path: "/var/lib/containerd", why: "it holds the containers of the host"},
	{path: "/var/lib/containers", why: "it holds the containers of the host"},
	{path: "/var/lib/kubelet", why: "it holds the containers of the host"},
	{path: "/var/spool/cron", why: whySystem},
	{path: "/bin", why: whySystem, writable: true},
	{path: "/sbin", why: whySystem, writable: true},
	{path: "/lib", why: whySystem, writable: true},
	{path: "/lib64", why: whySystem, writable: true},
	{path: "/usr", why: whySystem, writable: true},
}

// windows are the places of Windows, below its system drive.
var windows = []place{
	{path: `\Windows`, why: "it is the host's system"},
	{path: `\ProgramData`, why: "it holds the host's settings"},
	{path: `\Program Files`, why: whySystem, writable: true},
	{path: `\Program Files (x86)`, why: whySystem, writable: true},
}

// keys are places in a user's home that contain keys.
var keys = []string{
	".ssh", ".gnupg", ".aws", ".azure", ".oci", ".kube", ".config", ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".my.cnf",
	".s3cfg", ".boto", ".vault-token", ".terraform.d", ".password-store", ".cargo/credentials", ".cargo/credentials.toml",
	".gem/credentials", ".m2/settings.xml", ".gradle/gradle.properties", ".mozilla", ".thunderbird", ".local/share/keyrings",
	".docker", ".colima", ".lima", ".orbstack", ".rd", ".local/share/docker", ".local/share/containers", "Library/Keychains", "AppData",
}

// startup are places in a user's home that the host executes later.
var startup = []string{
	".profile", ".login", ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".zshrc", ".zshenv", ".zprofile",
	".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".vimrc", ".vim", ".emacs", ".emacs.d", ".gitconfig", ".local/bin", "bin",
	"Library/LaunchAgents",
}

// machine is the information about this machine that the check needs.
type machine struct {
	goos    string
	homes   []string // of this process's user
	keys    []string // other paths with that user's keys
	state   []string // folders of sandboxes
	sockets []string // the Docker sockets in the environment
	drive   string   // of Windows
}

// here returns the machine that the process runs on.
func here() machine {
	m := machine{goos: runtime.GOOS, drive: cmp.Or(os.Getenv("SystemDrive"), "C:")}
	if home, err := os.UserHomeDir(); err == nil {
		m.homes = append(m.homes, home)
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		m.homes = append(m.homes, u.HomeDir)
	}
	for _, name := range []string{"DOCKER_CONFIG", "XDG_CONFIG_HOME"} {
		if dir := os.Getenv(name); filepath.IsAbs(dir) {
			m.keys = append(m.keys, dir)
		}
	}
	// Whoever has it could mark objects of the daemon as the user's.
	if file, err := owner.SecretFile(); err == nil {
		m.keys = append(m.keys, file)
	}
	for _, kind := range []string{"docker", "local", "native", "owners"} {
		if dir, err := owner.StateDir(kind); err == nil {
			m.state = append(m.state, dir)
		}
	}
	if dir, err := os.UserCacheDir(); err == nil { // programs that sandboxes execute, and their images
		m.state = append(m.state, filepath.Join(dir, "fumehood"))
	}
	for _, scheme := range []string{"unix://", "npipe://"} {
		if socket, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), scheme); ok {
			m.sockets = append(m.sockets, filepath.FromSlash(socket))
		}
	}
	return m
}

// Unsafe returns why a path of this machine must not be mounted in a sandbox, whoever requests it, or "" if it may be
// mounted. Through such a path, code in the sandbox could take over the host, or read the user's keys. state are folders
// of sandboxes in other places than by default.
func Unsafe(path string, writable bool, state ...string) (why string) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return err.Error()
	}
	if !writable && slices.Contains(timeZone, abs) {
		return ""
	}
	real := Real(abs)
	for _, p := range []string{abs, real} {
		if slices.Contains(sockets, filepath.Base(p)) {
			return whySocket
		}
	}
	m := here()
	m.state = append(m.state, state...)
	if why := m.unsafe(real, writable); why != "" {
		return why
	}
	if info, err := os.Stat(real); err == nil && info.Mode()&(fs.ModeSocket|fs.ModeDevice) != 0 {
		return whyDevice
	}
	return ""
}

// unsafe checks a path without links.
func (m machine) unsafe(path string, writable bool) string {
	// Memory for temporary files of programs.
	shared := m.goos == "linux" && path != "/dev/shm" && within("/dev/shm", path)
	for _, p := range m.places(path) {
		if p.writable && !writable || shared && p.path == "/dev" {
			continue
		}
		for _, at := range []string{p.path, Real(p.path)} {
			switch {
			case m.within(at, path):
				return p.why
			case m.within(path, at):
				return "it contains " + p.path + ": " + p.why
			}
		}
	}
	return ""
}

// within reports whether a path is dir or below it. On macOS and Windows it ignores case, as their file systems do.
func (m machine) within(dir, path string) bool {
	if m.goos == "darwin" || m.goos == "windows" {
		dir, path = strings.ToLower(dir), strings.ToLower(path)
	}
	return within(dir, path)
}

// places returns the places to compare a path with.
func (m machine) places(path string) []place {
	var places []place
	homes := slices.Clone(m.homes)
	if m.goos == "windows" {
		for _, p := range windows {
			p.path = m.drive + p.path
			places = append(places, p)
		}
		homes = append(homes, homeOf(m.drive+`\Users`, path)...)
	} else {
		places = slices.Clone(unix)
		homes = append(homes, "/root")
		homes = append(homes, homeOf("/home", path)...)
		homes = append(homes, homeOf("/Users", path)...)
		if !slices.Contains(m.homes, "/root") {
			places = append(places, place{path: "/root", why: whyKeys})
		}
	}
	for _, home := range homes {
		for _, name := range keys {
			places = append(places, place{path: filepath.Join(home, name), why: whyKeys})
		}
		for _, name := range startup {
			places = append(places, place{path: filepath.Join(home, name), why: whyStartup, writable: true})
		}
	}
	for _, path := range m.keys {
		places = append(places, place{path: path, why: whyKeys})
	}
	for _, socket := range m.sockets {
		places = append(places, place{path: socket, why: whySocket})
	}
	for _, dir := range m.state {
		places = append(places, place{path: dir, why: whyState})
	}
	return places
}

// homeOf returns the home directory that contains a path, below the directory of all homes.
func homeOf(all, path string) []string {
	rel, err := filepath.Rel(all, path)
	if err != nil || !filepath.IsLocal(rel) || rel == "." {
		return nil
	}
	name, _, _ := strings.Cut(rel, string(filepath.Separator))
	return []string{filepath.Join(all, name)}
}
