//go:build amd64 || arm64

package native

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/opencontainers/cgroups"
)

// socketShare is the part of a sandbox's memory limit that the kernel may have for its sockets besides, as a divisor.
const socketShare = 4

// socketsFile is the file of version 1 with the limit. The kernel's documentation names only TCP, but what waits in sockets of UDP is
// charged there too.
const socketsFile = "memory.kmem.tcp.limit_in_bytes"

// limitSockets limits what the kernel keeps for the sandbox's sockets. Version 1 of control groups counts it apart from other
// memory, and only in groups with such a limit. With version 2 it is part of the memory.
func (c cgroup) limitSockets(memory int64) error {
	if cgroups.IsCgroup2UnifiedMode() || !c.has("memory") || memory <= 0 {
		return nil
	}
	err := cgroups.WriteFile(c.Path("memory"), socketsFile, strconv.FormatInt(memory/socketShare, 10))
	if errors.Is(err, os.ErrNotExist) { // Linux without CONFIG_INET
		return nil
	}
	return err
}

// limitsSockets reports whether limitSockets can.
func limitsSockets() bool {
	if cgroups.IsCgroup2UnifiedMode() {
		return true
	}
	_, err := os.Stat(filepath.Join(cgroupRoot, "memory", socketsFile))
	return err == nil
}
