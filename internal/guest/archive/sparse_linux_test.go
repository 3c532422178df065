package archive

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Otherwise a file that takes no space in a sandbox would fill the host's disk.
func TestUnpack_holes(t *testing.T) {
	const mib = 1 << 20
	text := strings.Repeat("content", 10_000)
	for name, body := range map[string]string{
		"all": strings.Repeat("\x00", 8*mib), "begin": strings.Repeat("\x00", 8*mib) + text, "end": text + strings.Repeat("\x00", 8*mib),
		"middle": text + strings.Repeat("\x00", 8*mib) + text, "odd": "\x00\x00" + strings.Repeat("\x00", 8*mib) + "x\x00",
	} {
		for kind, unpack := range map[string]func(*bytes.Buffer, string) error{
			"Unpack":     func(b *bytes.Buffer, dest string) error { return Unpack(b, dest, "x", Options{}) },
			"UnpackInto": func(b *bytes.Buffer, dest string) error { return UnpackInto(b, dest) },
		} {
			dest := t.TempDir()
			if err := unpack(stream(t, entry{name: "x", body: body}), dest); err != nil {
				t.Fatal(name, kind, err)
			}
			file := filepath.Join(dest, "x")
			got, err := os.ReadFile(file)
			if err != nil || string(got) != body {
				t.Errorf("%s, %s: other content, %v", name, kind, err)
			}
			var info syscall.Stat_t
			if err := syscall.Stat(file, &info); err != nil || info.Blocks*512 > mib {
				t.Errorf("%s, %s: %d bytes on disk, %v", name, kind, info.Blocks*512, err)
			}
		}
	}
}
