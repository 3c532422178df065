package server

import "net"

// QuietListener returns a listener over another. It accepts connections of unix sockets that wake Go's runtime less: see
// wire.Socket. Connections that are not of unix sockets, and those of other systems than Linux,
// stay as they are.
func QuietListener(over net.Listener) net.Listener { return listener{over} }

type listener struct{ net.Listener }

// Accept waits for a connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return quiet(c), nil
}
