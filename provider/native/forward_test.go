//go:build linux && (amd64 || arm64)

package native_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

// server sends each TCP client a word.
const server = `
import socket, sys
s = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    c, _ = s.accept()
    c.sendall(b"echo")
    c.close()
`

// datagramServer does the same for UDP.
const datagramServer = `
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], int(sys.argv[2])))
while True: s.sendto(b"echo", s.recvfrom(100)[1])
`

// askTCP returns what a forwarded port sends; empty if it does not answer.
func askTCP(p fumehood.Port) string { return ask(p, "tcp") }

func ask(p fumehood.Port, protocol string) string {
	c, err := net.DialTimeout(protocol, net.JoinHostPort(p.Address, fmt.Sprint(p.Host)), 10*time.Second) //nolint:noctx // bounded
	if err != nil {
		return ""
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return ""
	}
	_, _ = io.WriteString(c, "x")
	b := make([]byte, 100)
	n, _ := c.Read(b)
	return string(b[:n])
}

func TestService_Forward(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	for name, network := range map[string]fumehood.Network{"none": {}, "bridge": bridge} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !network.IsNone() {
				needNetwork(t)
			}
			sb := start(t, p, fumehood.Spec{Image: debian, User: "tester", Network: network})
			tcp, err := sb.Forward(t.Context(), fumehood.Port{Container: 8000})
			if err != nil || tcp.Address != "127.0.0.1" || tcp.Host == 0 || tcp.Protocol != fumehood.ProtocolTCP {
				t.Fatalf("%+v, %v", tcp, err)
			}
			udp, err := sb.Forward(t.Context(), fumehood.Port{Container: 8000, Protocol: fumehood.ProtocolUDP})
			if err != nil {
				t.Fatal(err)
			}
			if got := askTCP(tcp); got != "" {
				t.Errorf("without a listener: %q", got)
			}
			for text, at := range map[string]string{server: "127.0.0.1", datagramServer: "0.0.0.0"} {
				if _, err := sb.Start(t.Context(), fumehood.Cmd{Args: []string{"python3", "-c", text, at, "8000"}}); err != nil {
					t.Fatal(err)
				}
			}
			conformance.Eventually(t, "the servers answer", func() bool { return askTCP(tcp) == "echo" && ask(udp, "udp") == "echo" })
			if conn, err := sb.Connection(t.Context()); err != nil || len(conn.Ports) != 2 || conn.Ports[0] != tcp || conn.Ports[1] != udp {
				t.Errorf("%+v, %v", conn, err)
			}
			if _, err := sb.Forward(t.Context(), fumehood.Port{Container: 8000, Host: tcp.Host}); !errors.Is(err, fumehood.ErrConfig) {
				t.Errorf("in use: %v", err)
			}
			if err := sb.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if got := askTCP(tcp); got != "" {
				t.Errorf("after the close: %q", got)
			}
		})
	}
}

func TestService_Dial(t *testing.T) {
	t.Parallel()
	conformance.CheckDial(t, start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: debian, User: "tester"}))
}

func TestProvider_Start_portInUse(t *testing.T) {
	t.Parallel()
	p := newProvider(t, native.Options{})
	needNetwork(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = p.Start(t.Context(), fumehood.Spec{Image: busybox, Network: bridge, Ports: []fumehood.Port{{Container: 80, Host: l.Addr().(*net.TCPAddr).Port}}})
	conformance.WantError(t, err, fumehood.ErrConfig)
}
