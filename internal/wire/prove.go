package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"time"
)

// nonceSize is how many random bytes each side asks the other with.
const nonceSize = 32

// ErrStranger says that the peer does not know the secret.
var ErrStranger = errors.New("the peer does not know the secret")

// Prove shows the peer that this side, which plays role, knows the secret, and has the peer show that too,
// without either telling it: what carries the bytes, a relay in the sandbox, learns nothing that it could use
// for another connection. It comes before the frames. The guest asks first, and a host that cannot answer
// learns nothing from it.
func Prove(rw io.ReadWriter, role Role, secret []byte) error {
	ours, theirs := make([]byte, nonceSize), make([]byte, nonceSize)
	_, _ = rand.Read(ours) // it never fails
	if role == Guest {
		if _, err := rw.Write(ours); err != nil {
			return err
		}
		if _, err := io.ReadFull(rw, theirs); err != nil {
			return err
		}
		if err := check(rw, proof(Host, secret, ours, theirs)); err != nil {
			return err
		}
		_, err := rw.Write(proof(Guest, secret, ours, theirs))
		return err
	}
	if _, err := io.ReadFull(rw, theirs); err != nil {
		return err
	}
	if _, err := rw.Write(append(ours, proof(Host, secret, theirs, ours)...)); err != nil {
		return err
	}
	return check(rw, proof(Guest, secret, theirs, ours))
}

// limited is a connection whose reads and writes can have a deadline.
type limited interface {
	io.ReadWriter
	SetDeadline(t time.Time) error
}

// ProveWithin is Prove within a time.
func ProveWithin(conn limited, role Role, secret []byte, within time.Duration) error {
	err := conn.SetDeadline(time.Now().Add(within))
	if err == nil {
		err = Prove(conn, role, secret)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	return err
}

// proof is what only who knows the secret can make of the two sides' questions.
func proof(role Role, secret, guests, hosts []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte{byte(role)}) // it never fails
	_, _ = mac.Write(guests)
	_, _ = mac.Write(hosts)
	return mac.Sum(nil)
}

func check(r io.Reader, want []byte) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		return err
	}
	if !hmac.Equal(got, want) {
		return ErrStranger
	}
	return nil
}
