package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood/internal/archive"
)

// ErrNoUser reports an unknown user or group.
var ErrNoUser = errors.New("no such user or group")

const (
	// maxUserFile limits how much of /etc/passwd and /etc/group is read, in bytes.
	maxUserFile = 1 << 20
	// maxID is the largest user or group id that the Engine accepts.
	maxID = 1<<31 - 1
)

// Owner resolves "name", "uid", "name:group" or "uid:gid" with /etc/passwd and /etc/group, as the Engine does. A
// number need not be in these files. Without a group, gid is the user's own group, or 0.
func Owner(spec string) (uid, gid int, err error) {
	return owner(spec, "/etc/passwd", "/etc/group")
}

func owner(spec, passwd, groups string) (uid, gid int, err error) {
	name, group, hasGroup := strings.Cut(spec, ":")
	uid, gid, ok := lookUp(passwd, name)
	if !ok {
		return 0, 0, fmt.Errorf("%w: %q", ErrNoUser, name)
	}
	if hasGroup {
		if gid, _, ok = lookUp(groups, group); !ok {
			return 0, 0, fmt.Errorf("%w: %q", ErrNoUser, group)
		}
	}
	return uid, gid, nil
}

// lookUp finds a name or a number in a file with lines "name:password:number:group...", and returns the number and
// the group. A file that cannot be read is treated as empty.
func lookUp(file, key string) (number, next int, ok bool) {
	number, known := id(key)
	f, err := archive.OpenRegular(file)
	if err != nil {
		return number, 0, known
	}
	defer f.Close()
	for lines := bufio.NewScanner(io.LimitReader(f, maxUserFile)); lines.Scan(); {
		fields := strings.Split(lines.Text(), ":")
		if len(fields) < 3 {
			continue
		}
		n, valid := id(fields[2])
		if !valid || fields[0] != key && (!known || n != number) || fields[0] == "" {
			continue
		}
		if len(fields) > 3 {
			next, _ = id(fields[3])
		}
		return n, next, true
	}
	return number, 0, known
}

func id(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= maxID
}
