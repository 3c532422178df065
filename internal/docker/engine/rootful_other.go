//go:build !linux

package engine

// Rootful reports whether the Engine is known to run as root on this machine. It is always false on this system.
func (c *Client) Rootful() bool { return false }
