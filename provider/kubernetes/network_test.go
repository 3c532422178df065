//go:build linux && amd64

package kubernetes_test

import (
	"encoding/json"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/kubernetes"
)

// outside is an address of the internet for a Pod. This machine has it for the test (TEST-NET-2 of RFC 5737).
const outside = "198.51.100.7"

// A sandbox with a network reaches the internet, but neither the node nor the cluster nor other Pods, which do not reach it
// either. Root in it cannot change that.
func TestSandbox_network(t *testing.T) {
	t.Parallel()
	p := newProvider(t, kubernetes.Options{})
	if out, err := exec.CommandContext(t.Context(), "ip", "address", "add", outside+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "address", "del", outside+"/32", "dev", "lo").CombinedOutput(); err != nil { //nolint:noctx // t's has ended
			t.Errorf("%v: %s", err, out)
		}
	})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	spec := fumehood.Spec{Image: debian, Network: fumehood.Network{Mode: fumehood.NetworkBridge}}
	other, sb := start(t, p, spec), start(t, p, spec)
	serve, err := other.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", `
import socket
s = socket.create_server(("0.0.0.0", 8000)); d = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); d.connect(("8.8.8.8", 53))
print(d.getsockname()[0], flush=True)
while True: s.accept()
`}})
	if err != nil {
		t.Fatal(err)
	}
	var address string
	for e, err := range serve.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if address = strings.TrimSpace(string(e.Data)); address != "" {
			break
		}
	}
	var made struct{ Status struct{ HostIP string } }
	if err := json.Unmarshal([]byte(pod(t, node(t), sb.Info().Name)), &made); err != nil || made.Status.HostIP == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	const script = `
import fcntl, json, os, socket, struct, sys
out = {}
for name, address, port in [a.split("/") for a in sys.argv[1:]]:
    try:
        socket.create_connection((address, int(port)), 5).close(); out[name] = "reached"
    except OSError as e:
        out[name] = os.strerror(e.errno) if e.errno else str(e)
try:
    socket.create_connection(("2001:db8::1", 443), 5); out["IPv6"] = "reached"
except OSError as e:
    out["IPv6"] = "no"
r = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
r.send(struct.pack("IHHII", 28, 33, 5, 1, 0) + bytes([2, 0, 0, 0, 0, 0, 0, 8]) + bytes(4))  # RTM_DELRULE
out["rules"] = os.strerror(-struct.unpack("i", r.recv(4096)[16:20])[0])
try:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW); out["raw"] = "open"
except OSError as e:
    out["raw"] = os.strerror(e.errno)
print(json.dumps(out, sort_keys=True))
`
	res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{
		"python3", "-c", script, "internet/" + outside + "/" + port, "node/" + made.Status.HostIP + "/" + port, "pod/" + address + "/8000", "gateway/10.201.97.1/" + port,
		"cluster/10.201.96.1/443", "metadata/169.254.169.254/80", "itself/127.0.0.1/1",
	}})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"IPv6": "no", "cluster": "Permission denied", "gateway": "Permission denied", "internet": "reached", "itself": "Connection refused", ` +
		`"metadata": "Permission denied", "node": "Permission denied", "pod": "Permission denied", "raw": "Operation not permitted", "rules": "Operation not permitted"}`
	if got := strings.TrimSpace(res.Stdout.Text()); got != want {
		t.Errorf("got\n%s, want\n%s\n%s", got, want, res.Stderr.Text())
	}
	if c, err := net.DialTimeout("tcp", address+":8000", time.Second); err == nil { //nolint:noctx // it has a timeout
		c.Close()
		t.Error("the node has reached a sandbox")
	}
}
