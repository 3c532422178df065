package owner

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestSecret(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	t.Setenv(SecretVariable, "")
	secrets := make([][]byte, 16)
	var all sync.WaitGroup
	for i := range secrets {
		all.Go(func() {
			var err error
			if secrets[i], err = Secret(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, s := range secrets {
		if len(s) != secretSize || !bytes.Equal(s, secrets[0]) || bytes.Equal(s, make([]byte, secretSize)) {
			t.Fatalf("the secrets are %x", secrets)
		}
	}
	file := filepath.Join(dir, "fumehood", "secret")
	left, err := os.ReadDir(filepath.Dir(file))
	if err != nil || len(left) != 1 {
		t.Errorf("there is %v, %v", left, err)
	}
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	shared := filepath.Join(dir, "shared")
	t.Setenv(SecretVariable, shared)
	if other, err := Secret(); err != nil || bytes.Equal(other, secrets[0]) {
		t.Errorf("by the variable: %x, %v", other, err)
	}
}

func TestSecret_refused(t *testing.T) {
	const digits = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
	}{
		"others_read":  {digits, 0o604},
		"others_write": {digits, 0o602},
		"group_writes": {digits, 0o620},
		"short":        {digits[2:], 0o600},
		"long":         {digits + "00", 0o600},
		"no_digits":    {strings.Repeat("x", 64), 0o600},
		"empty":        {"", 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			if runtime.GOOS == "windows" && c.mode != 0o600 {
				t.Skip("files have no such modes on this platform")
			}
			file := filepath.Join(t.TempDir(), "secret")
			t.Setenv(SecretVariable, file)
			if err := errors.Join(os.WriteFile(file, []byte(c.text), 0o600), os.Chmod(file, c.mode)); err != nil {
				t.Fatal(err)
			}
			if _, err := Secret(); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), file) {
				t.Errorf("got %v, want an ErrConfig that names the file", err)
			}
		})
	}
	t.Run("folder", func(t *testing.T) {
		t.Setenv(SecretVariable, t.TempDir())
		if _, err := Secret(); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("got %v", err)
		}
	})
}

func TestSecret_ofAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a file away")
	}
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir)
	t.Setenv(SecretVariable, "")
	if _, err := Secret(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "fumehood", "secret")
	if err := os.Chown(file, 1234, 1234); err != nil {
		t.Fatal(err)
	}
	if _, err := Secret(); !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), "user 1234") {
		t.Errorf("got %v", err)
	}
	t.Setenv(SecretVariable, file)
	if _, err := Secret(); err != nil {
		t.Errorf("named by the variable: %v", err)
	}
}
