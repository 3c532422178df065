//go:build linux && (amd64 || arm64)

package workers_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/workers"
)

// makeCertificate writes a certificate for 127.0.0.1, or for a name, that signs itself, and its key.
func makeCertificate(t *testing.T, dir string, names ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	if len(names) > 0 {
		template.IPAddresses, template.DNSNames = nil, names
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: signed}, key: {Type: "PRIVATE KEY", Bytes: text}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// A worker on TCP needs its token, and its certificate must be trusted.
func TestProvider_TLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := makeCertificate(t, dir)
	const token = "a-token-of-some-length"
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := &server{dir: shortDir(t)}
	s.start(t, "--listen", address, "--tls-cert", cert, "--tls-key", key, "--token-file", filepath.Join(dir, "token"))
	await(t, "tcp", address, s)
	for name, c := range map[string]struct {
		opts  workers.Options
		class error // nil if it works
	}{
		"trusted":     {workers.Options{URLs: []string{"https://" + address}, CAFile: cert, Token: token}, nil},
		"untrusted":   {workers.Options{URLs: []string{"https://" + address}, Token: token}, fumehood.ErrUnavailable},
		"no token":    {workers.Options{URLs: []string{"https://" + address}, CAFile: cert}, fumehood.ErrUnavailable},
		"without TLS": {workers.Options{URLs: []string{"http://" + address}, Token: token}, fumehood.ErrUnavailable},
	} {
		p, err := workers.New(c.opts)
		if err != nil {
			t.Fatal(err)
		}
		sb, err := p.Start(t.Context(), fumehood.Spec{Image: debian})
		if c.class != nil {
			conformance.WantError(t, err, c.class)
			t.Logf("%s: %v", name, err)
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		conformance.CheckDial(t, sb)
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
