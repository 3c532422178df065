package hostpath

// File is the file or folder that a path led to.
type File struct {
	Path          string // without links
	Device, Inode uint64 // as returned by stat(2); both are 0 on systems other than Linux
}

// Mountable returns the file that would be mounted, and why that is not safe; empty if it is. A path that leads to no
// file is an error. See Unsafe for state.
func Mountable(path string, writable bool, state ...string) (f File, why string, err error) {
	why = Unsafe(path, writable, state...)
	if f, err = identify(path); err == nil && why == "" {
		why = Unsafe(f.Path, writable, state...)
	}
	return f, why, err
}
