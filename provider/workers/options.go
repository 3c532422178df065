package workers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"

	"github.com/fumehood/fumehood"
)

// Options configures a provider. Either URLs or Discover is required.
type Options struct {
	// URLs are the addresses of the workers: http://HOST:PORT, https://HOST:PORT, or unix:PATH.
	URLs []string
	// Discover finds workers that come and go. Nil means those of URLs.
	Discover *Discovery
	// Token is the bearer token of the workers' --token-file. Empty means none, for sockets.
	Token string
	// CAFile is a file with certificates in PEM that sign those of https workers. Empty means the system's.
	CAFile string
	// TLS configures connections to https workers, such as with client certificates. CAFile replaces its RootCAs. Nil means
	// the defaults.
	TLS *tls.Config
	// Logger receives a warning when a worker does not answer, or is lost with its sandboxes. Nil disables logging.
	Logger *slog.Logger
}

// tls returns the configuration of connections to https workers.
func (o *Options) tls() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TLS != nil {
		config = o.TLS.Clone()
	}
	if o.CAFile == "" {
		return config, nil
	}
	text, err := os.ReadFile(o.CAFile)
	if err != nil {
		return nil, err
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", o.CAFile)
	}
	return config, nil
}

// parseURL splits the address of a worker into the base of its URLs and the path of its socket, which is empty for TCP.
func parseURL(address string) (base, socket string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path = "/" + strings.TrimLeft(path, "/"); path == "/" {
			return "", "", fmt.Errorf("%q names no socket", address)
		}
		return "http://localhost", path, nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "", "", err
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", "", fmt.Errorf("%q is not http://HOST:PORT, https://HOST:PORT or unix:PATH", address)
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.User != nil:
		return "", "", errors.New("the address of a worker has a host and a port only")
	}
	return u.Scheme + "://" + u.Host, "", nil
}

// configError returns the error of options that cannot be used.
func configError(err error) error {
	return &fumehood.Error{Op: "make workers provider", Class: fumehood.ErrConfig, Err: err}
}
