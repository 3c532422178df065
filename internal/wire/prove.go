package wire

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"time"
)

// nonceSize is the size of each side's random challenge, in bytes.
const nonceSize = 32

// ErrStranger means that the peer does not know the secret.
var ErrStranger = errors.New("the peer does not know the secret")

// Prove proves to the peer that this side, which has the given role, knows the secret, and has the peer prove the
// same. Neither side sends the secret. So a relay in the sandbox that forwards the bytes learns nothing that it could
// use for another connection. The exchange precedes the frames. The guest sends its challenge first, and reveals
// nothing to a host that cannot answer it.
func Prove(rw io.ReadWriter, role Role, secret []byte) error {
	own, peers := make([]byte, nonceSize), make([]byte, nonceSize)
	_, _ = rand.Read(own) // never fails
	if role == Guest {
		if _, err := rw.Write(own); err != nil {
			return err
		}
		if _, err := io.ReadFull(rw, peers); err != nil {
			return err
		}
		if err := checkProof(rw, proof(Host, secret, own, peers)); err != nil {
			return err
		}
		_, err := rw.Write(proof(Guest, secret, own, peers))
		return err
	}
	if _, err := io.ReadFull(rw, peers); err != nil {
		return err
	}
	if _, err := rw.Write(append(own, proof(Host, secret, peers, own)...)); err != nil {
		return err
	}
	return checkProof(rw, proof(Guest, secret, peers, own))
}

// limited is a connection with deadlines for reads and writes.
type limited interface {
	io.ReadWriter
	SetDeadline(t time.Time) error
}

// ProveWithin is Prove with a timeout.
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

// proof returns the MAC of the two sides' challenges, which requires the secret.
func proof(role Role, secret, guests, hosts []byte) []byte {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte{byte(role)}) // never fails
	_, _ = mac.Write(guests)
	_, _ = mac.Write(hosts)
	return mac.Sum(nil)
}

func checkProof(r io.Reader, want []byte) error {
	got := make([]byte, len(want))
	if _, err := io.ReadFull(r, got); err != nil {
		return err
	}
	if !hmac.Equal(got, want) {
		return ErrStranger
	}
	return nil
}
