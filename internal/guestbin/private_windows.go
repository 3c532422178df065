package guestbin

import "io/fs"

// private returns nil: the cache folder of a Windows user is below the user's profile, which others cannot write to.
func private(string, fs.FileInfo) error { return nil }
