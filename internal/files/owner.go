package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
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
	// maxGroups is how many supplementary groups a process can have (NGROUPS_MAX in Linux).
	maxGroups = 1 << 16
)

// Owner resolves "name", "uid", "name:group" or "uid:gid" with /etc/passwd and /etc/group, as the Engine does. A
// number need not be in these files. Without a group, gid is the user's own group, or 0.
func Owner(spec string) (uid, gid int, err error) {
	return owner(spec, "/etc/passwd", "/etc/group")
}

func owner(spec, passwd, groups string) (uid, gid int, err error) {
	u, err := lookUpUser(spec, passwd, groups)
	return u.UID, u.GID, err
}

// User is a user as a process runs as it.
type User struct {
	UID, GID int
	Groups   []int  // supplementary groups: GID and, unless the group was given, those that list the user
	Home     string // absolute; "/" if the files name none
}

// LookUpUser is Owner with everything that a process needs to run as the user.
func LookUpUser(spec string) (User, error) { return lookUpUser(spec, "/etc/passwd", "/etc/group") }

func lookUpUser(spec, passwd, groups string) (User, error) {
	name, group, hasGroup := strings.Cut(spec, ":")
	u := User{Home: "/"}
	var found []string
	known := false
	if u.UID, found, known = lookUp(passwd, name); !known {
		return User{}, fmt.Errorf("%w: %q", ErrNoUser, name)
	}
	if len(found) > 3 && found[3] != "" {
		valid := false
		if u.GID, valid = id(found[3]); !valid {
			return User{}, fmt.Errorf("%w: %q has the group %q", ErrNoUser, name, found[3])
		}
	}
	if len(found) > 5 && strings.HasPrefix(found[5], "/") {
		u.Home = found[5]
	}
	if hasGroup {
		if u.GID, _, known = lookUp(groups, group); !known {
			return User{}, fmt.Errorf("%w: %q", ErrNoUser, group)
		}
	}
	// As in Docker since 20.10.18 (CVE-2022-36109): without it, a program with a group of its own could leave this one,
	// and so the permissions that a file denies to it.
	u.Groups = []int{u.GID}
	if found != nil && !hasGroup {
		u.Groups = append(u.Groups, groupsOf(groups, found[0])...)
	}
	return u, nil
}

// groupsOf returns the groups that list a user as a member.
func groupsOf(file, user string) (all []int) {
	for fields := range records(file) {
		if len(fields) > 3 && slices.Contains(strings.Split(fields[3], ","), user) {
			if n, ok := id(fields[2]); ok && len(all) < maxGroups-1 {
				all = append(all, n)
			}
		}
	}
	return all
}

// records yields the fields of a file with lines "name:password:number:...". A file that cannot be read is treated as
// empty.
func records(file string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		f, err := archive.OpenRegular(file)
		if err != nil {
			return
		}
		defer f.Close()
		for lines := bufio.NewScanner(io.LimitReader(f, maxUserFile)); lines.Scan(); {
			if fields := strings.Split(lines.Text(), ":"); len(fields) > 2 && !yield(fields) {
				return
			}
		}
	}
}

// lookUp finds a name or a number in a file, and returns the number and the fields of its line, if there is one.
func lookUp(file, key string) (number int, fields []string, ok bool) {
	number, known := id(key)
	for fields := range records(file) {
		n, valid := id(fields[2])
		if !valid || fields[0] != key && (!known || n != number) || fields[0] == "" {
			continue
		}
		return n, fields, true
	}
	return number, nil, known
}

func id(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= maxID
}
