package fake

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood"
)

// cred is who does something.
type cred struct{ uid, gid int }

var root = cred{}

// lookUp finds "name", "uid", "name:group" or "uid:gid"; empty is root. A number need not be known.
func (b *box) lookUp(user string) (cred, error) {
	if user == "" {
		return root, nil
	}
	name, group, hasGroup := strings.Cut(user, ":")
	c := cred{}
	known := false
	number, err := strconv.Atoi(name)
	for _, u := range b.users {
		if u.Name == name || (err == nil && u.UID == number) {
			c, known = cred{u.UID, u.GID}, true
			break
		}
	}
	if !known {
		if err != nil || number < 0 {
			return cred{}, &fumehood.Error{Class: fumehood.ErrUserNotFound, Err: fmt.Errorf("no user %q", name)}
		}
		c.uid = number
	}
	if !hasGroup {
		return c, nil
	}
	for _, u := range b.users {
		if u.Name == group {
			c.gid = u.GID
			return c, nil
		}
	}
	gid, err := strconv.Atoi(group)
	if err != nil || gid < 0 {
		return cred{}, &fumehood.Error{Class: fumehood.ErrUserNotFound, Err: fmt.Errorf("no group %q", group)}
	}
	c.gid = gid
	return c, nil
}
