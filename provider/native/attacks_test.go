//go:build linux && (amd64 || arm64)

package native_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
	"github.com/fumehood/fumehood/test/tier"
)

// calls are the numbers of the system calls that attempts make by number.
var calls = map[string]int{
	"unshare": unix.SYS_UNSHARE, "clone": unix.SYS_CLONE, "clone3": unix.SYS_CLONE3, "setns": unix.SYS_SETNS,
	"mount": unix.SYS_MOUNT, "umount2": unix.SYS_UMOUNT2, "pivot_root": unix.SYS_PIVOT_ROOT, "fsopen": unix.SYS_FSOPEN,
	"open_tree": unix.SYS_OPEN_TREE, "move_mount": unix.SYS_MOVE_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR, "fspick": unix.SYS_FSPICK,
	"open_by_handle_at": unix.SYS_OPEN_BY_HANDLE_AT, "ptrace": unix.SYS_PTRACE, "process_vm_readv": unix.SYS_PROCESS_VM_READV,
	"pidfd_open": unix.SYS_PIDFD_OPEN, "pidfd_getfd": unix.SYS_PIDFD_GETFD, "kcmp": unix.SYS_KCMP, "keyctl": unix.SYS_KEYCTL,
	"add_key": unix.SYS_ADD_KEY, "request_key": unix.SYS_REQUEST_KEY, "io_uring_setup": unix.SYS_IO_URING_SETUP, "bpf": unix.SYS_BPF,
	"perf_event_open": unix.SYS_PERF_EVENT_OPEN, "userfaultfd": unix.SYS_USERFAULTFD, "init_module": unix.SYS_INIT_MODULE,
	"finit_module": unix.SYS_FINIT_MODULE, "kexec_load": unix.SYS_KEXEC_LOAD, "reboot": unix.SYS_REBOOT, "swapon": unix.SYS_SWAPON,
	"acct": unix.SYS_ACCT, "quotactl": unix.SYS_QUOTACTL, "settimeofday": unix.SYS_SETTIMEOFDAY, "clock_settime": unix.SYS_CLOCK_SETTIME,
	"sethostname": unix.SYS_SETHOSTNAME, "syslog": unix.SYS_SYSLOG, "fanotify_init": unix.SYS_FANOTIFY_INIT, "capset": unix.SYS_CAPSET,
	"shmget": unix.SYS_SHMGET, "msgget": unix.SYS_MSGGET, "mq_open": unix.SYS_MQ_OPEN, "vhangup": unix.SYS_VHANGUP,
}

// prelude is in front of each attempt. An attempt shows "done" for what succeeded, and the kernel's error otherwise.
const prelude = `
import ctypes, errno, fcntl, glob, json, os, signal, socket, stat, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
NR, HOST = json.loads(os.environ["NR"]), json.loads(os.environ["HOST"])
def show(what): print(what)
def call(name, *args):
    ctypes.set_errno(0)
    r = libc.syscall(NR[name], *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    show(errno.errorcode[ctypes.get_errno()] if r == -1 else "done " + name)
def attempt(f, *args):
    try: return show("done %s" % (args,)) if f(*args) is not False else show("nothing")
    except OSError as e: show(errno.errorcode[e.errno])
def opened(path, flags=os.O_RDONLY): os.close(os.open(path, flags | os.O_NONBLOCK))
buf = ctypes.create_string_buffer(1 << 16)
# others are the guest's processes: the first process and its workers.
others = [int(p) for p in os.listdir("/proc") if p.isdigit() and open("/proc/%s/comm" % p).read().startswith("guest")]
assert 1 in others
`

// An attack is a program that must fail in each of its steps.
type attack struct {
	script string
	want   string // the only results that it may show, separated by blanks
}

var attacks = map[string]attack{
	"join namespaces": {`
for ns in "mnt pid net ipc uts user cgroup".split():
    attempt(opened, "/proc/1/ns/" + ns)
    call("setns", os.open("/proc/self/ns/" + ns, os.O_RDONLY), 0)
call("setns", os.pidfd_open(1), 0x20000)
`, "EPERM EACCES"},
	"make namespaces": {`
for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x80):
    call("unshare", flag)
    if flag != 0x80: call("clone", flag | 17, 0, 0, 0, 0)
call("clone3", buf, 64)
`, "EPERM ENOSYS"},
	"mount": {`
for args in ((b"none", b"/tmp", b"tmpfs", 0), (b"none", b"/tmp", b"proc", 0), (b"/", b"/tmp", b"", 4096), (b"", b"/proc/sys", b"", 4096 | 32),
             (b"", b"/", b"", 32), (b"", b"/.fumehood", b"", 4096 | 32), (b"", b"/sys", b"", 32), (b"", b"/ro", b"", 4096 | 32), (b"", b"/", b"", 1 << 20)):
    call("mount", *args, b"")
call("fsopen", b"tmpfs", 0); call("fspick", -100, b"/", 0); call("open_tree", -100, b"/", 1); call("open_tree", -100, b"/ro", 1 | 0x8000)
call("move_mount", -100, b"/ro", -100, b"/tmp", 0); call("mount_setattr", -100, b"/ro", 0, struct.pack("QQQQ", 0, 1, 0, 0), 32)
`, "EPERM ENOSYS"},
	"unmount": {`
for p in (b"/proc/kcore", b"/proc/keys", b"/proc/sys", b"/proc/timer_list", b"/sys/firmware", b"/sys/fs/cgroup", b"/ro", b"/.fumehood", b"/dev", b"/"):
    for flags in (0, 2): call("umount2", p, flags)
`, "EPERM"},
	"another root": {`
attempt(os.chroot, "/tmp"); call("pivot_root", b"/tmp", b"/tmp"); attempt(os.chroot, "/proc/1/root")
`, "EPERM EACCES"},
	"the host's files": {`
for path in (HOST["marker"], "/proc/1/root" + HOST["marker"], "/proc/1/cwd" + HOST["marker"], "/proc/self/cwd/../../../../.." + HOST["marker"], "/.." + HOST["marker"]):
    attempt(opened, path)
for fd in range(64):
    attempt(opened, "/proc/1/fd/%d/../../../../../../../../.." % fd + HOST["marker"])
    attempt(opened, "/proc/self/fd/%d/../../../../../../../../.." % fd + HOST["marker"])
`, "ENOENT EACCES ENOTDIR"},
	"file handles": {`
handle = struct.pack("iI", 8, 1) + struct.pack("II", 2, 0) # the root of ext4
for at in ("/", "/ro", "/rw", "/proc", "/dev"): call("open_by_handle_at", os.open(at, os.O_RDONLY), handle, 0)
`, "EPERM"},
	"device nodes": {`
for kind, major, minor in ((stat.S_IFBLK, *HOST["disk"]), (stat.S_IFCHR, 1, 1), (stat.S_IFCHR, 1, 11), (stat.S_IFCHR, 10, 229)):
    for dir in ("/tmp", "/dev", "/dev/shm", "/rw"): attempt(lambda: (os.mknod(dir + "/node", kind | 0o666, os.makedev(major, minor)), opened(dir + "/node")))
`, "EPERM EACCES"},
	"files of the kernel": {`
# Opening a file for writing changes nothing. A process's own files are its own.
for top in ("/proc", "/sys"):
    for dir, dirs, files in os.walk(top):
        if dir == "/proc": dirs[:] = [d for d in dirs if not d.isdigit() and d not in ("self", "thread-self", "net", "pressure")]
        for f in files:
            path = os.path.join(dir, f)
            mode = os.lstat(path).st_mode # nobody can write to a file without the permission bits
            if stat.S_ISREG(mode) and mode & 0o222: attempt(opened, path, os.O_WRONLY)
`, "EROFS EACCES EPERM EIO ENOENT ENXIO EINVAL"},
	"what is hidden": {`
for path in ("/proc/kcore", "/proc/keys", "/proc/timer_list", "/proc/latency_stats", "/proc/interrupts"):
    if os.path.exists(path): attempt(lambda: len(open(path, "rb").read(1)) > 0)
for path in ("/sys/firmware", "/proc/acpi", "/proc/scsi", "/proc/asound", "/sys/devices/virtual/powercap"):
    if os.path.exists(path): attempt(lambda: len(os.listdir(path)) > 0)
attempt(opened, "/proc/kmsg"); attempt(opened, "/dev/kmsg"); attempt(opened, "/dev/mem")
call("syslog", 3, buf, 4096); call("syslog", 10, 0, 0)
`, "nothing EPERM EACCES ENOENT"},
	"control groups": {`
top = "/sys/fs/cgroup"
dirs = [top] + [os.path.join(top, d) for d in os.listdir(top) if os.path.isdir(os.path.join(top, d))]
for d in dirs:
    attempt(os.mkdir, d + "/new")
    for f in os.listdir(d):
        if os.path.isfile(d + "/" + f): attempt(opened, d + "/" + f, os.O_WRONLY)
    for f in ("release_agent", "cgroup.procs", "tasks", "notify_on_release", "memory.limit_in_bytes", "memory.max", "pids.max"):
        attempt(opened, d + "/" + f, os.O_WRONLY)
attempt(lambda: [l for l in open("/proc/self/cgroup") if "fumehood" in l] != [])
`, "EROFS EACCES ENOENT nothing"},
	"the guest's processes": {`
for pid in others:
    for f in ("root", "cwd", "exe"): attempt(os.readlink, "/proc/%d/%s" % (pid, f))
    for f in ("fd", "fdinfo", "map_files", "ns"): attempt(lambda: os.listdir("/proc/%d/%s" % (pid, f)) and os.readlink("/proc/%d/%s/%s" % (pid, f, os.listdir("/proc/%d/%s" % (pid, f))[0])))
    for f in ("mem", "environ", "auxv", "maps", "smaps", "pagemap", "exe", "fd/0", "stack", "syscall"):
        attempt(lambda: len(open("/proc/%d/%s" % (pid, f), "rb").read(1)) > 0)
    for f in ("mem", "exe", "fd/0", "fd/2"): attempt(opened, "/proc/%d/%s" % (pid, f), os.O_WRONLY)
`, "EPERM EACCES EROFS nothing"},
	"trace the guest": {`
iov = struct.pack("QQ", ctypes.addressof(buf), 8)
for pid in others:
    call("ptrace", 16, pid, 0, 0); call("ptrace", 0x4206, pid, 0, 0)
    call("process_vm_readv", pid, iov, 1, struct.pack("QQ", 0x400000, 8), 1, 0)
    fd = os.pidfd_open(pid)
    for n in range(4): call("pidfd_getfd", fd, n, 0)
    call("kcmp", os.getpid(), pid, 0, 0, 0)
`, "EPERM EACCES ENOSYS"},
	"the host's processes": {`
attempt(os.kill, HOST["pid"], 0); attempt(os.pidfd_open, HOST["pid"]); attempt(opened, "/proc/%d/status" % HOST["pid"])
`, "ESRCH ENOENT EINVAL"},
	"keys": {`
for op in (0, 1, 6, 11, 21): call("keyctl", op, -3, 0, 0, 0)
call("add_key", b"user", b"a", b"b", 1, -3); call("request_key", b"user", b"a", b"b", -3)
`, "EPERM ENOSYS"},
	"system calls": {`
call("io_uring_setup", 4, buf); call("bpf", 0, buf, 72); call("bpf", 5, buf, 72); call("perf_event_open", buf, 0, -1, -1, 0); call("userfaultfd", 0)
call("init_module", buf, 1, b""); call("finit_module", 0, b"", 0); call("kexec_load", 0, 0, 0, 0); call("reboot", 0, 0, 0, 0)
call("swapon", b"/tmp/x", 0); call("acct", b"/tmp/x"); call("quotactl", 0x80000200, b"/", 0, 0); call("settimeofday", buf, 0)
call("clock_settime", 0, buf); call("sethostname", b"x", 1); call("fanotify_init", 0, 0); call("vhangup")
`, "EPERM ENOSYS"},
	"capabilities": {`
head = struct.pack("Ii", 0x20080522, 0)
call("capset", head, struct.pack("6I", *[0xffffffff, 0xffffffff, 0, 0x1ff, 0x1ff, 0]))
call("capset", head, struct.pack("6I", *[1 << 21, 1 << 21, 0, 0, 0, 0]))
open("/tmp/cap-%d" % os.getuid(), "w").close()
attempt(lambda: os.setxattr("/tmp/cap-%d" % os.getuid(), "security.capability", struct.pack("<5I", 0x02000001, 1 << 21, 0, 0, 0)))
attempt(lambda: os.setxattr("/tmp/cap-%d" % os.getuid(), "trusted.overlay.redirect", b"/"))
f = os.open("/tmp/cap-%d" % os.getuid(), os.O_RDONLY)
attempt(lambda: fcntl.ioctl(f, 0x40086602, struct.pack("Q", 0x10))) # chattr +i
`, "EPERM EOPNOTSUPP ENOTTY"},
	"limits and priorities": {`
import resource
def score(pid): os.write(os.open("/proc/%s/oom_score_adj" % pid, os.O_WRONLY), b"-1")
attempt(score, "self"); attempt(score, 1)
for pid in others: attempt(lambda: int(open("/proc/%d/oom_score_adj" % pid).read()) < 0)
for r in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK):
    hard = resource.getrlimit(r)[1]
    if hard >= 0:
        try: resource.setrlimit(r, (hard + 1, hard + 1)); show("done")
        except (ValueError, PermissionError): show("EPERM")
attempt(os.setpriority, os.PRIO_PROCESS, 0, -5); attempt(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
`, "EPERM EACCES EROFS nothing"},
	"network": {`
attempt(lambda: [i for i in socket.if_nameindex() if i[1] != "lo"] != [])
attempt(lambda: len(open("/proc/net/route").readlines()) > 1)
for family, kind, proto in ((2, 3, 1), (2, 3, 255), (17, 3, 0x300), (10, 3, 58), (40, 1, 0), (38, 5, 0), (31, 3, 1), (16, 3, 0x99)): attempt(socket.socket, family, kind, proto)
for address in (("192.0.2.1", 80), ("169.254.169.254", 80), ("127.0.0.1", HOST["port"])):
    s = socket.socket(); s.settimeout(5); attempt(s.connect, address)
attempt(socket.socket(socket.AF_UNIX).connect, "\0" + HOST["abstract"]); attempt(socket.socket(socket.AF_UNIX).connect, HOST["socket"])
`, "nothing EPERM EACCES EAFNOSUPPORT EPROTONOSUPPORT ENETUNREACH ECONNREFUSED ENOENT ESOCKTNOSUPPORT"},
	"configure the network": {`
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt(lambda: fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 0)))
attempt(lambda: fcntl.ioctl(s, 0x8916, struct.pack("16sHH4s8x", b"lo", 2, 0, b"\x0a\0\0\1")))
`, "EPERM"},
	"queues and shared memory": {`
call("shmget", HOST["key"], 0, 0); call("msgget", HOST["key"], 0); call("mq_open", HOST["queue"].encode(), 0, 0, 0)
`, "ENOENT"},
	"terminal": {`
attempt(opened, "/dev/tty"); attempt(opened, "/dev/console"); attempt(opened, "/dev/tty1"); attempt(opened, "/dev/pts/0")
for fd in (0, 1, 2): attempt(lambda: fcntl.ioctl(fd, 0x5412, b"x"))
`, "ENXIO ENOENT ENOTTY EPERM EIO"},
	"read-only mount": {`
for path in ("/ro/file", "/.fumehood/guest"):
    attempt(opened, path, os.O_WRONLY); attempt(os.chmod, path, 0o777); attempt(os.chown, path, 0, 0); attempt(os.unlink, path); attempt(os.utime, path)
    attempt(os.link, path, "/tmp/hard"); attempt(os.rename, path, "/tmp/moved"); attempt(os.setxattr, path, "user.a", b"b"); attempt(os.truncate, path, 0)
    attempt(opened, os.path.dirname(path) + "/new", os.O_CREAT | os.O_WRONLY)
`, "EROFS EXDEV EACCES EPERM ETXTBSY"},
	"the guest's modes": {`
config = json.dumps({"user": "0", "capabilities": (1 << 41) - 1, "root": {"layers": ["/"], "scratch": "/tmp", "guest": "/bin"} if sys.argv[1:] else None}).encode()
for mode in ("join", "setup"):
    a, b = socket.socketpair()
    p = subprocess.Popen(["/.fumehood/guest", mode], stdin=b, stdout=b, stderr=subprocess.DEVNULL)
    b.close(); a.settimeout(20); a.sendall(struct.pack(">I", len(config)) + config)
    n = struct.unpack(">I", a.recv(4, socket.MSG_WAITALL))[0]
    reply = json.loads(a.recv(n, socket.MSG_WAITALL))
    attempt(lambda: not reply.get("step")); p.kill(); p.wait()
for mode in ("enter", "enter-user", "share"):
    a, b = socket.socketpair()
    p = subprocess.Popen(["/.fumehood/guest", mode], stdin=b, stdout=b, stderr=subprocess.DEVNULL); b.close()
    try: a.sendall(struct.pack(">I", 2) + b"{}")
    except BrokenPipeError: pass # it has ended
    attempt(lambda: p.wait(20) == 0)
`, "nothing"},
	"descriptors": {`
for f in range(3, 1024): attempt(os.readlink, "/proc/self/fd/%d" % f)
attempt(lambda: "FUMEHOOD_TEST_SECRET" in os.environ)
`, "nothing ENOENT"},
	"mounts": {`
known = {"/", "/proc", "/sys", "/.fumehood", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue", "/ro", "/rw"}
if HOST["userns"]: known |= {"/dev/" + d for d in "null zero full random urandom tty".split()}
for line in open("/proc/self/mountinfo"):
    _, _, _, root, at, options, *rest = line.split()
    attempt(lambda _: at not in known and not at.startswith(("/proc/", "/sys/")), at)
    attempt(lambda _: rest[0] != "-", at) # propagates
    attempt(lambda _: "nosuid" not in options.split(",") and root != "/null" and at not in HOST["suid"], at + " suid")
    if at not in ("/", "/dev", "/proc", "/dev/pts", "/dev/shm", "/dev/mqueue", "/rw"): attempt(lambda _: "ro" not in options.split(",") and root != "/null", at + " rw")
attempt(lambda: os.listdir("/rw/later") != [])
`, "nothing"},
	"rights of all processes": {`
for p in os.listdir("/proc"):
    if p.isdigit():
        has = dict(l.split(":\t", 1) for l in open("/proc/%s/status" % p).read().splitlines() if ":\t" in l)
        attempt(lambda: has["NoNewPrivs"] != "1" or has["Seccomp"] != "2")
        for c in ("CapEff", "CapPrm", "CapBnd", "CapInh", "CapAmb"): attempt(lambda: int(has[c], 16) & ~HOST["caps"] != 0)
`, "nothing"},
}

// usernsAttacks are further attacks on a sandbox in a user namespace.
var usernsAttacks = map[string]attack{
	"its mapping": {`
for name, text in (("uid_map", "0 0 1"), ("gid_map", "0 0 1"), ("setgroups", "deny")):
    for p in ("self", "1"): attempt(lambda: open("/proc/%s/%s" % (p, name), "wb", 0).write(text.encode()))
for f in (os.setresuid, os.setresgid): attempt(f, *[HOST["ids"]] * 3)
attempt(os.setgroups, [HOST["ids"]])
`, "EPERM EACCES EROFS EINVAL"},
	"the host's files as root": {`
for d in glob.glob("/dev/*") + ["/.fumehood", "/.fumehood/guest", "/sys", "/sys/fs/cgroup", "/proc/sys"]:
    if not os.path.islink(d) and d not in ("/dev/pts", "/dev/shm", "/dev/mqueue"):
        for f in (lambda: os.chmod(d, 0o777), lambda: os.chown(d, 0, 0), lambda: os.utime(d)): attempt(f)
for at in ("/rw", "/tmp"): attempt(lambda: os.chown(at, HOST["ids"], 0))
attempt(lambda: open("/rw/of-other").read())
call("mount", b"none", b"/tmp", b"overlay", 0, b""); call("fsopen", b"proc", 0); call("keyctl", 1, 0)
`, "EPERM EROFS EACCES EINVAL ENOSYS"},
}

// TestSandbox_attacks tries to get out of a sandbox, as root and as another user.
func TestSandbox_attacks(t *testing.T) { attackAll(t, native.Options{}) }

func TestSandbox_attacks_userNamespace(t *testing.T) {
	tier.Need(t, tier.CI)
	attackAll(t, native.Options{UserNamespace: true})
}

func TestSandbox_attacks_rootless(t *testing.T) {
	if os.Getenv(unprivileged) == "" { // the attacks set variables
		t.Parallel()
	}
	tier.Need(t, tier.CI)
	withIDs(t, func(t *testing.T) {
		attackAll(t, native.Options{})
		shareMemory(t)
	}, debian, static)
}

// attackAll tries to get out of a sandbox of a provider with options. At some mount points files may have set-user-ID bits,
// which have no effect all the same.
func attackAll(t *testing.T, opts native.Options, suid ...string) {
	h := newHost(t)
	h.facts["suid"] = append([]string{}, suid...)
	userns := opts.UserNamespace || os.Getenv(unprivileged) != ""
	h.facts["userns"] = userns
	sb := start(t, newProvider(t, opts), fumehood.Spec{Image: debian, Mounts: h.mounts})
	h.afterwards(t)
	if userns {
		h.attack(t, sb, "root", usernsAttacks)
	}
	if os.Getenv(unprivileged) == "" || tier.Of(t) == tier.All {
		h.attack(t, sb, "root", attacks)
	}
	if !userns || tier.Of(t) == tier.All {
		h.attack(t, sb, "tester", attacks)
	}
	h.descriptors(t, sb)
}

// attack makes attempts as a user of a sandbox.
func (h *host) attack(t *testing.T, sb fumehood.Sandbox, user string, attacks map[string]attack) {
	t.Helper()
	numbers, err := json.Marshal(calls)
	if err != nil {
		t.Fatal(err)
	}
	facts, err := json.Marshal(h.facts)
	if err != nil {
		t.Fatal(err)
	}
	for name, a := range attacks {
		t.Run(user+"/"+name, func(t *testing.T) {
			res, err := sb.As(user).Exec(t.Context(), fumehood.Cmd{
				Args: []string{"python3", "-c", prelude + a.script}, Dir: "/", Timeout: time.Minute,
				Env: map[string]string{"NR": string(numbers), "HOST": string(facts)},
			})
			if err != nil {
				t.Fatal(err)
			}
			if !res.Success() || res.Stdout.Total == 0 {
				t.Fatalf("%+v: %s", res, res.Stderr.Text())
			}
			for line := range strings.Lines(res.Stdout.Text()) {
				if line = strings.TrimSpace(line); !strings.Contains(" "+a.want+" ", " "+line+" ") {
					t.Errorf("shows %q", line)
				}
			}
		})
	}
	if got := run(t, sb.As(user), "echo alive"); got != "alive" {
		t.Errorf("afterwards: got %q", got)
	}
}

// The first process survives every signal, and what is in a sandbox cannot stop it.
func TestSandbox_signals(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	for _, image := range []fumehood.Spec{{Image: debian}, {Image: debian, User: "tester"}} {
		sb := start(t, p, image)
		for range 3 {
			// It may kill the command's own worker, and itself.
			_, _ = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "for s in $(seq 1 64); do kill -$s 1; done"}, Timeout: time.Minute})
			_, _ = sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "kill -STOP 1; kill -9 -1"}, Timeout: time.Minute})
			if got := run(t, sb, "echo alive"); got != "alive" {
				t.Errorf("got %q", got)
			}
		}
	}
}

// A program cannot get the rights of its file's owner.
func TestSandbox_setUserID(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian})
	run(t, sb, "cp /usr/bin/python3 /usr/bin/su-python && chmod 6755 /usr/bin/su-python")
	if got := run(t, sb, "stat -c %a /usr/bin/su-python"); got != "6755" {
		t.Fatalf("the file has mode %s", got)
	}
	if got := run(t, sb.As("tester"), "/usr/bin/su-python -c 'import os; print(os.getresuid(), os.getresgid())'"); got != "(1000, 1000, 1000) (1000, 1000, 1000)" {
		t.Errorf("got %s", got)
	}
}

// Sandboxes of one image share the files of its layers, which must not change.
func TestSandbox_layers(t *testing.T) {
	t.Parallel()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	p := newProvider(t, native.Options{})
	one, two := start(t, p, fumehood.Spec{Image: debian}), start(t, p, fumehood.Spec{Image: debian})
	found, err := filepath.Glob(filepath.Join(cache, "fumehood", "native", "images", "layers-*", "*", "etc", "debian_version"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no layer: %v, %v", found, err)
	}
	state := func() (all string) {
		for _, f := range found {
			text, err := os.ReadFile(f)
			info, serr := os.Stat(f)
			if err != nil || serr != nil {
				t.Fatal(err, serr)
			}
			all += string(text) + info.Mode().String() + info.ModTime().String()
		}
		return all
	}
	before, version := state(), run(t, two, "cat /etc/debian_version")
	for _, script := range []string{
		"ln /etc/debian_version /etc/hard && echo x >> /etc/hard",
		"chmod 777 /etc/debian_version && chown 1000 /etc/debian_version && touch /etc/debian_version",
		"python3 -c 'import mmap; f = open(\"/etc/debian_version\", \"r+b\"); m = mmap.mmap(f.fileno(), 0); m[0:1] = b\"X\"; m.flush()'",
		"echo changed > /etc/debian_version && mv /etc/debian_version /etc/moved && rm -rf /etc/hard",
	} {
		run(t, one, script)
	}
	if state() != before {
		t.Error("the layer has changed")
	}
	if got := run(t, two, "cat /etc/debian_version; test -e /etc/moved || echo no"); got != version+"\nno" {
		t.Errorf("the other sandbox has %q", got)
	}
}

func TestSandbox_unsearchableRoot(t *testing.T) {
	t.Parallel()
	conformance.CheckUnsearchable(t, start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian}))
}
