package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fumehood/fumehood"
)

const opListen = "listen"

// ListenUnix listens on a unix socket with mode 0600. It replaces a socket that an ended server left.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) {
		return nil, &fumehood.Error{Op: opListen, Path: path, Class: fumehood.ErrConfig, Err: err}
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return fail(errors.New("the file exists, and is not a socket"))
		}
		if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
			conn.Close()
			return fail(errors.New("another server listens there"))
		}
		if err := os.Remove(path); err != nil {
			return fail(err)
		}
	}
	// The socket has its name only when it has its mode.
	dir, err := os.MkdirTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	unnamed := filepath.Join(dir, "s")
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", unnamed)
	if err != nil {
		return fail(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(unnamed, 0o600), os.Rename(unnamed, path)); err != nil {
		return fail(errors.Join(err, l.Close()))
	}
	return &named{l, path}, nil
}

// named removes the listener's socket when it is closed.
type named struct {
	net.Listener
	path string
}

func (n *named) Close() error {
	_ = os.Remove(n.path) // it may have been replaced or removed
	return n.Listener.Close()
}

// SocketPath returns the default path of the server's socket: fumehood.sock in $XDG_RUNTIME_DIR, else in a folder that
// only this user can enter, which it creates.
func SocketPath() (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "fumehood.sock"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &fumehood.Error{Op: opListen, Class: fumehood.ErrConfig, Err: err, Hint: "set XDG_RUNTIME_DIR or --socket"}
	}
	dir := filepath.Join(home, ".local", "state", "fumehood", "server")
	if err = os.MkdirAll(dir, 0o700); err == nil {
		err = os.Chmod(dir, 0o700) //nolint:gosec // a folder needs x
	}
	if err != nil {
		return "", &fumehood.Error{Op: opListen, Path: dir, Class: fumehood.ErrConfig, Err: err}
	}
	return filepath.Join(dir, "fumehood.sock"), nil
}

// PrivateSocket returns the path for a socket in a new folder that only this user can enter. remove removes the folder.
func PrivateSocket(ctx context.Context) (path string, remove func() error, err error) {
	sweepSockets(ctx)
	dir, err := os.MkdirTemp("", privatePrefix)
	if err != nil {
		return "", nil, err
	}
	return filepath.Join(dir, "s"), func() error { return os.RemoveAll(dir) }, nil
}

const privatePrefix = "fumehood-serve-"

// sweepSockets removes the folders of private sockets that killed servers left: those on which no server listens.
func sweepSockets(ctx context.Context) {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), privatePrefix+"*")) // it only fails for a bad pattern
	for _, dir := range dirs {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", filepath.Join(dir, "s"))
		if err == nil {
			conn.Close()
		}
		if errors.Is(err, syscall.ECONNREFUSED) { // others may not enter the folder, nor remove it
			_ = os.RemoveAll(dir)
		}
	}
}

// TLS are the files of a server's certificate and key in PEM. Both are empty without TLS.
type TLS struct{ Cert, Key string }

// ListenTCP listens on an address HOST:PORT. An address that is not of the loopback needs TLS.
func ListenTCP(ctx context.Context, address string, files TLS) (net.Listener, error) {
	fail := func(hint string, err error) (net.Listener, error) {
		return nil, &fumehood.Error{Op: opListen, Path: address, Class: fumehood.ErrConfig, Err: err, Hint: hint}
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fail("use HOST:PORT", err)
	}
	ip := net.ParseIP(host)
	switch {
	case ip == nil && host != "localhost":
		return fail("use an IP address", fmt.Errorf("%q is not an IP address", host))
	case files == TLS{} && ip != nil && !ip.IsLoopback():
		return fail("set --tls-cert and --tls-key, or listen on 127.0.0.1", errors.New("other machines reach this address, and would send the token unencrypted"))
	}
	var config *tls.Config
	if files != (TLS{}) {
		cert, err := tls.LoadX509KeyPair(files.Cert, files.Key)
		if err != nil {
			return fail("", err)
		}
		config = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fail("", err)
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return l, nil
}
