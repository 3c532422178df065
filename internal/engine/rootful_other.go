//go:build !linux

package engine

// Rootful reports whether the Engine is known to be root on this machine, which it never is here.
func (c *Client) Rootful() bool { return false }
