package files

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood/internal/guest/archive"
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

// User is a user as a process runs as it.
type User struct {
	UID, GID int
	Groups   []int  // supplementary groups: GID and, unless the group was given, those that list the user
	Home     string // absolute; "/" if the files name none
}

// Owner is LookUpUser for the owner of files.
func Owner(spec string) (uid, gid int, err error) {
	u, err := LookUpUser(spec)
	return u.UID, u.GID, err
}

// LookUpUser is FindUser with this process's /etc/passwd and /etc/group. A file that cannot be read is treated as empty.
func LookUpUser(spec string) (User, error) {
	return FindUser(spec, userFile("/etc/passwd"), userFile("/etc/group"))
}

func userFile(name string) []byte {
	f, err := archive.OpenRegular(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	content, _ := io.ReadAll(io.LimitReader(f, maxUserFile)) // what can be read of it
	return content
}

// FindUser resolves "user" or "user:group", each a name or a number, with the content of /etc/passwd and /etc/group, as
// the Engine does. A number is an id, never a name, and need not be in these files. An empty user is root. Without a
// group, or with an empty one, GID is the user's own group, or 0.
func FindUser(spec string, passwd, groups []byte) (User, error) {
	name, group, _ := strings.Cut(spec, ":")
	u := User{Home: "/"}
	uid, found, err := lookUp(passwd, cmp.Or(name, "0"))
	if err != nil {
		return User{}, err
	}
	u.UID = uid
	if len(found) > 3 && found[3] != "" {
		valid := false
		if u.GID, valid = id(found[3]); !valid {
			return User{}, fmt.Errorf("%w: %q has the group %q", ErrNoUser, name, found[3])
		}
	}
	if len(found) > 5 && strings.HasPrefix(found[5], "/") {
		u.Home = found[5]
	}
	if group != "" {
		if u.GID, _, err = lookUp(groups, group); err != nil {
			return User{}, err
		}
	}
	// As in Docker since 20.10.18 (CVE-2022-36109): without it, a program with a group of its own could leave this one,
	// and so the permissions that a file denies to it.
	u.Groups = []int{u.GID}
	if found != nil && group == "" {
		u.Groups = append(u.Groups, groupsOf(groups, found[0])...)
	}
	return u, nil
}

// groupsOf returns the groups that list a user as a member.
func groupsOf(file []byte, user string) (all []int) {
	if user == "" {
		return nil
	}
	for fields := range records(file) {
		if len(fields) > 3 && slices.Contains(strings.Split(fields[3], ","), user) {
			if n, ok := id(fields[2]); ok && len(all) < maxGroups-1 {
				all = append(all, n)
			}
		}
	}
	return all
}

// records yields the fields of a file with lines "name:password:number:...".
func records(file []byte) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range bytes.Lines(file) {
			if fields := strings.Split(string(bytes.TrimSpace(line)), ":"); len(fields) > 2 && !yield(fields) {
				return
			}
		}
	}
}

// lookUp finds a name or a number in a file, and returns the number and the fields of its line, if there is one.
func lookUp(file []byte, key string) (number int, fields []string, err error) {
	if err := checkID(key); err != nil {
		return 0, nil, err
	}
	number, isID := id(key)
	for fields := range records(file) {
		n, valid := id(fields[2])
		if valid && (isID && n == number || !isID && fields[0] == key) {
			return n, fields, nil
		}
	}
	if !isID {
		return 0, nil, fmt.Errorf("%w: %q", ErrNoUser, key)
	}
	return number, nil, nil
}

// CheckIDs returns ErrNoUser if the user or the group of "user:group" is a number but not an id. The Engine would look
// up a number of more than 63 bits as a name.
func CheckIDs(spec string) error {
	user, group, _ := strings.Cut(spec, ":")
	return cmp.Or(checkID(user), checkID(group))
}

// CheckGroupName returns an error if a number is the name of a group with another id, by the content of /etc/group.
func CheckGroupName(number string, groups []byte) error {
	n, _ := id(number)
	for fields := range records(groups) {
		if named, ok := id(fields[0]); ok && named == n && fields[2] != strconv.Itoa(n) {
			return fmt.Errorf("the group %s is the name of the group %s of the image", number, fields[2])
		}
	}
	return nil
}

// checkID returns an error for a number that is not an id. A name is fine.
func checkID(text string) error {
	digits := strings.TrimLeft(text, "+-")
	if _, ok := id(text); ok || digits == "" || strings.Trim(digits, "0123456789") != "" {
		return nil
	}
	return fmt.Errorf("%w: %q is not between 0 and %d", ErrNoUser, text, maxID)
}

func id(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 0 && n <= maxID
}
