package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

var secret = bytes.Repeat([]byte{7}, SecretSize)

// prove runs the proof between a guest and a host with the given secrets, and returns their errors.
func prove(t *testing.T, guest, host []byte) (guests, hosts error) {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan error, 1)
	go func() {
		err := Prove(a, Guest, guest)
		if err != nil {
			_ = a.Close()
		}
		done <- err
	}()
	hosts = Prove(b, Host, host)
	_ = b.Close()
	guests = <-done
	_ = a.Close()
	return guests, hosts
}

func TestProve(t *testing.T) {
	if guests, hosts := prove(t, secret, secret); guests != nil || hosts != nil {
		t.Errorf("guest: %v, host: %v", guests, hosts)
	}
}

func TestProve_wrongHostSecret(t *testing.T) {
	guests, hosts := prove(t, secret, make([]byte, SecretSize))
	if !errors.Is(guests, ErrStranger) || hosts == nil {
		t.Errorf("guest: %v, host: %v", guests, hosts)
	}
}

// talk is one side of a connection: a scripted peer's input, and a record of what was sent to the peer.
type talk struct {
	io.Reader
	heard bytes.Buffer
}

func (t *talk) Write(p []byte) (int, error) { return t.heard.Write(p) }

func TestProve_replayedProof(t *testing.T) {
	// It replays another host's proof, and the guest's own challenge.
	replay := &talk{Reader: bytes.NewReader(bytes.Repeat([]byte{1}, 1000))}
	if err := Prove(replay, Host, secret); !errors.Is(err, ErrStranger) {
		t.Errorf("got %v", err)
	}
}

func TestProof_distinct(t *testing.T) {
	a, b := bytes.Repeat([]byte{1}, nonceSize), bytes.Repeat([]byte{2}, nonceSize)
	host := proof(Host, secret, a, b)
	for name, other := range map[string][]byte{
		"the other role": proof(Guest, secret, a, b), "swapped challenges": proof(Host, secret, b, a),
		"another secret": proof(Host, make([]byte, SecretSize), a, b),
	} {
		if bytes.Equal(host, other) {
			t.Errorf("%s: the same proof", name)
		}
	}
}

// FuzzProve checks that no peer is accepted by chance, and that no more is read than necessary.
func FuzzProve(f *testing.F) {
	f.Add([]byte{}, true)
	f.Add(make([]byte, nonceSize), true)
	f.Add(make([]byte, nonceSize+32), true)
	f.Add(make([]byte, nonceSize+32), false)
	f.Add(bytes.Repeat([]byte{0xff}, 500), false)
	f.Fuzz(func(t *testing.T, data []byte, guest bool) {
		role := Host
		if guest {
			role = Guest
		}
		in := bytes.NewReader(data)
		peer := &talk{Reader: in}
		if err := Prove(peer, role, secret); err == nil {
			t.Fatal("a peer without the secret was accepted")
		}
		if read := len(data) - in.Len(); read > nonceSize+32 {
			t.Errorf("%d bytes were read", read)
		}
		if guest && peer.heard.Len() > nonceSize {
			t.Error("a peer without the secret received more than the challenge")
		}
	})
}
