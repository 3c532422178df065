package owner

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/guest/files"
)

// SecretVariable is the environment variable that names the file of the secret.
const SecretVariable = "FUMEHOOD_SECRET_FILE"

// secretSize is the size of a secret in bytes. The file contains it in hexadecimal.
const secretSize = 32

// Secret returns the user's secret, by which Fumehood recognizes objects that it made. The secret is in the file that
// FUMEHOOD_SECRET_FILE names, or in fumehood/secret in the user's state folder. Secret creates the file if it does not
// exist. Users and machines that share a daemon may share the file.
//
// Secret returns an ErrConfig if the file does not exist and cannot be created, if it contains something else, if every
// user can read it, or if users other than its owner can change it. Its group may read it. It also returns an ErrConfig
// if no variable names the file and it belongs to a user other than this one and root.
func Secret() ([]byte, error) {
	file, err := SecretFile()
	if err == nil {
		var secret []byte
		secret, err = readSecret(file)
		if errors.Is(err, fs.ErrNotExist) {
			if err = makeSecret(file); err == nil || errors.Is(err, fs.ErrExist) {
				secret, err = readSecret(file)
			}
		}
		if err == nil {
			return secret, nil
		}
	}
	return nil, &fumehood.Error{
		Op: "read the secret of labels", Path: file, Class: fumehood.ErrConfig, Err: err,
		Hint: "set " + SecretVariable + " to a file of this user, of mode 0600; it is created if it does not exist",
	}
}

// SecretFile returns the path of the secret.
func SecretFile() (string, error) {
	if file := os.Getenv(SecretVariable); file != "" {
		return file, nil
	}
	return StateDir("secret")
}

func readSecret(file string) ([]byte, error) {
	f, err := archive.OpenRegular(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o027 != 0:
		return nil, fmt.Errorf("mode %#o: others can read or change it", info.Mode().Perm())
	}
	// A user who names a file explicitly may share it with its owner.
	if uid, _ := files.OwnerOf(info); uid > 0 && uid != os.Geteuid() && os.Getenv(SecretVariable) == "" {
		return nil, fmt.Errorf("file belongs to user %d, who can read it", uid)
	}
	text, err := io.ReadAll(io.LimitReader(f, 2*secretSize+3))
	if err != nil {
		return nil, err
	}
	secret, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(secret) != secretSize {
		return nil, fmt.Errorf("not %d hexadecimal digits", 2*secretSize)
	}
	return secret, nil
}

// makeSecret creates the file atomically, with its content. If the file exists, the error is fs.ErrExist.
func makeSecret(file string) error {
	dir := filepath.Dir(file)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".secret-") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	secret := make([]byte, secretSize)
	_, _ = rand.Read(secret) // it never fails
	_, err = fmt.Fprintf(f, "%x\n", secret)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Link(f.Name(), file)
}
