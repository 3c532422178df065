//go:build !linux

package hostpath

import "os"

func identify(path string) (File, error) {
	_, err := os.Stat(path)
	return File{Path: path}, err
}
