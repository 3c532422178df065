# Tries to read secrets: the environment of the first process, and the host's Docker socket, disks and files.
import glob
import os

found = []
try:
    with open("/proc/1/environ", "rb") as f:
        names = [pair.split(b"=")[0].decode() for pair in f.read().split(b"\0") if pair]
except PermissionError:
    names = []
found += [name for name in names if name not in ("PATH", "HOSTNAME", "HOME", "LANG", "GPG_KEY") and not name.startswith("PYTHON")]
found += [p for p in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock") if os.path.exists(p)]
found += glob.glob("/dev/sd*") + glob.glob("/dev/vd*") + glob.glob("/dev/nvme*")
found += [p for p in ("/var/lib/docker", "/host", "/root/.ssh", "/root/.docker") if os.path.exists(p)]
with open("/etc/shadow") as f:  # the image's own file, which contains no passwords
    found += [line.split(":")[0] for line in f if line.split(":")[1] not in ("", "*", "!", "!*", "!!")]
print("found:", ", ".join(found) or "nothing")
