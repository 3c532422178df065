package guest

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// openTerminal opens a pseudo terminal (pty(7)).
func openTerminal(size wire.Size) (parent *patient, child int, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, -1, err
	}
	parent = newPatient(fd, "terminal")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = setSize(fd, size)
	}
	if err == nil {
		child, err = unix.Open("/dev/pts/"+strconv.Itoa(number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		_ = parent.Close()
		return nil, -1, err
	}
	return parent, child, nil
}

func setSize(fd int, size wire.Size) error {
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols})
}
