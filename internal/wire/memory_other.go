//go:build !linux

package wire

import "errors"

// newMemory returns errors.ErrUnsupported.
func newMemory(bool) (*memory, int, error) { return nil, -1, errors.ErrUnsupported }

// mapMemory returns errors.ErrUnsupported.
func mapMemory(int, bool) (*memory, error) { return nil, errors.ErrUnsupported }

func unmap([]byte) {}

func closeFile(int) {}
