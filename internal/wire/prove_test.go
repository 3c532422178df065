package wire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
)

var secret = bytes.Repeat([]byte{7}, SecretSize)

// prove has two sides prove to each other what they know.
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

func TestBothSidesProveThatTheyKnowTheSecret(t *testing.T) {
	if guests, hosts := prove(t, secret, secret); guests != nil || hosts != nil {
		t.Errorf("the guest says %v, the host %v", guests, hosts)
	}
}

func TestAHostWithoutTheSecretIsNotAnswered(t *testing.T) {
	guests, hosts := prove(t, secret, make([]byte, SecretSize))
	if !errors.Is(guests, ErrStranger) || hosts == nil {
		t.Errorf("the guest says %v, the host %v", guests, hosts)
	}
}

// talk is what one side says, and where what it hears goes.
type talk struct {
	io.Reader
	heard bytes.Buffer
}

func (t *talk) Write(p []byte) (int, error) { return t.heard.Write(p) }

func TestAGuestWithoutTheSecretIsNotBelieved(t *testing.T) {
	// It has heard another host's proof, and says that, and says its own question again.
	said := &talk{Reader: bytes.NewReader(bytes.Repeat([]byte{1}, 1000))}
	if err := Prove(said, Host, secret); !errors.Is(err, ErrStranger) {
		t.Errorf("got %v", err)
	}
}

func TestAProofIsNoProofTheOtherWayOrToAnotherQuestion(t *testing.T) {
	a, b := bytes.Repeat([]byte{1}, nonceSize), bytes.Repeat([]byte{2}, nonceSize)
	host := proof(Host, secret, a, b)
	for name, other := range map[string][]byte{
		"the other role": proof(Guest, secret, a, b), "the questions swapped": proof(Host, secret, b, a),
		"another secret": proof(Host, make([]byte, SecretSize), a, b),
	} {
		if bytes.Equal(host, other) {
			t.Errorf("%s: the same proof", name)
		}
	}
}

// FuzzProve checks that nobody is admitted by chance, and that nothing but what has to be read is.
func FuzzProve(f *testing.F) {
	f.Add([]byte{}, true)
	f.Add(make([]byte, nonceSize), true)
	f.Add(make([]byte, nonceSize+32), true)
	f.Add(make([]byte, nonceSize+32), false)
	f.Add(bytes.Repeat([]byte{0xff}, 500), false)
	f.Fuzz(func(t *testing.T, said []byte, guest bool) {
		role := Host
		if guest {
			role = Guest
		}
		in := bytes.NewReader(said)
		peer := &talk{Reader: in}
		if err := Prove(peer, role, secret); err == nil {
			t.Fatal("a stranger was admitted")
		}
		if read := len(said) - in.Len(); read > nonceSize+32 {
			t.Errorf("%d bytes were read", read)
		}
		if guest && peer.heard.Len() > nonceSize {
			t.Error("a stranger was told more than the question")
		}
	})
}
