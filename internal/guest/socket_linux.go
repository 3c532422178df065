package guest

import (
	"encoding/binary"
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"github.com/fumehood/fumehood/internal/wire"
)

// socketPair creates a non-blocking socket for this process, and a blocking one for a process that it starts.
func socketPair() (own, peer int, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		if err = unix.SetNonblock(pair[0], true); err != nil {
			err = errors.Join(err, unix.Close(pair[0]), unix.Close(pair[1]))
		}
	}
	return pair[0], pair[1], err
}

// post writes one task to a worker's socket, together with file descriptors.
func post(socket *wire.Socket, t task, files []int) error {
	msg := packMessage(&t)
	var rights []byte
	if len(files) > 0 {
		rights = unix.UnixRights(files...)
	}
	sent := 0
	var serr error
	err := socket.Writing(func(fd int) bool {
		sent, serr = wire.RawSend(fd, msg, rights)
		return !errors.Is(serr, unix.EAGAIN)
	})
	if err = errors.Join(err, serr); err != nil {
		return err
	}
	if sent < len(msg) {
		_, err = socket.Write(msg[sent:])
	}
	return err
}

// readWithFiles fills p with the first bytes of a message, and returns the file descriptors that came with it.
func readWithFiles(socket *wire.Socket, p []byte) ([]int, error) {
	oob := make([]byte, unix.CmsgSpace(3*4))
	var n, oobn int
	var rerr error
	err := socket.Reading(func(fd int) bool {
		for {
			if n, oobn, rerr = wire.RawReceive(fd, p, oob); !errors.Is(rerr, unix.EINTR) {
				return !errors.Is(rerr, unix.EAGAIN)
			}
		}
	})
	if err = errors.Join(err, rerr); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	files, err := filesIn(oob[:oobn])
	if err != nil || n == len(p) {
		return files, err
	}
	_, err = io.ReadFull(socket, p[n:])
	return files, err
}

func filesIn(oob []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		files = append(files, fds...)
	}
	return files, nil
}

// receive reads one task and the file descriptors sent with it. The first bytes of it have arrived.
func receive() (t task, files []int, err error) {
	head, control := make([]byte, 4), make([]byte, unix.CmsgSpace(3*4))
	n, size := 0, 0
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		n, size, err = wire.RawReceive(workerSocket, head, control)
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return t, nil, err
	}
	if files, err = filesIn(control[:size]); err != nil {
		return t, files, err
	}
	if _, err := io.ReadFull(tasks{}, head[n:]); err != nil {
		return t, files, err
	}
	body := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(tasks{}, body); err != nil {
		return t, files, err
	}
	return t, files, wire.Unpack(body, &t)
}

// tasks reads from the guest. It waits.
type tasks struct{}

func (tasks) Read(p []byte) (int, error) {
	for {
		switch n, err := unix.Read(workerSocket, p); {
		case errors.Is(err, unix.EINTR):
		case err == nil && n == 0:
			return 0, io.EOF
		default:
			return max(n, 0), err
		}
	}
}
