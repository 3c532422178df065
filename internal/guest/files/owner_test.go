package files

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

const (
	testPasswd = "# a comment\n\nroot:x:0:0:root:/root:/bin/sh\nbroken:x\nalice:x:1000:100::/home/alice:\n bob:x:1001:100::relative:\n" +
		"zoe:x:1003:::\n:x:3:33:::\neve:x:1002:-1:::\nhuge:x:99999999999:1:::\nbeyond:x:2147483648:1:::\nnone:x:none:1:::\n" +
		"7:x:0:0::/:\n2147483648:x:0:0::/:\n9223372036854775808:x:0:0::/:\n+9223372036854775808:x:0:0::/:\n"
	testGroups = "root:x:0:\nstaff:x:50:alice,7\nwheel:x:51:bob,alice\nbad:x:-1:alice\nempty:x:52:\n50000:x:0:\n9223372036854775808:x:0:\n"
)

func TestFindUser(t *testing.T) {
	alone := func(uid, gid int) User { return User{uid, gid, []int{gid}, "/"} }
	root := User{0, 0, []int{0}, "/root"}
	alice := User{1000, 100, []int{100, 50, 51}, "/home/alice"}
	for spec, want := range map[string]User{
		"root": root, "": root, ":": root, "0": root, "0:": root, "00": root, "+0": root, ":50": {0, 50, []int{50}, "/root"},
		"alice": alice, "1000": alice, "alice:": alice, "01000": alice,
		"alice:staff": {1000, 50, []int{50}, "/home/alice"}, "alice:50": {1000, 50, []int{50}, "/home/alice"},
		"bob": {1001, 100, []int{100, 51}, "/"}, "zoe": alone(1003, 0), "3": alone(3, 33),
		"4321": alone(4321, 0), "4321:": alone(4321, 0), "4321:8765": alone(4321, 8765), "2147483647:2147483647": alone(maxID, maxID),
		"7": alone(7, 0), "+7": alone(7, 0), "4321:50000": alone(4321, 50000),
	} {
		if got, err := FindUser(spec, []byte(testPasswd), []byte(testGroups)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v, %v, want %+v", spec, got, err, want)
		}
	}
	for _, spec := range []string{
		"nobody", "alice:nobody", "alice:bad", "-1", "0:-1", "2147483648", "0:2147483648", "9223372036854775808", "+9223372036854775808",
		"0:9223372036854775808", "huge", "beyond", "none", "broken", "eve", "#", "1e3", " 0", "0 ", "0x0", "1:2:3", "-", "+",
	} {
		if got, err := FindUser(spec, []byte(testPasswd), []byte(testGroups)); !errors.Is(err, ErrNoUser) {
			t.Errorf("%q is %+v, %v", spec, got, err)
		}
	}
	if got, err := FindUser("12:34", nil, nil); err != nil || !reflect.DeepEqual(got, alone(12, 34)) {
		t.Errorf("without the files: %+v, %v", got, err)
	}
}

func TestCheckIDs(t *testing.T) {
	for spec, ok := range map[string]bool{
		"": true, ":": true, "root": true, "0": true, "2147483647:2147483647": true, "1st": true, "-": true,
		"2147483648": false, "root:2147483648": false, "9223372036854775808": false, ":99999999999999999999": false, "-1": false,
	} {
		if err := CheckIDs(spec); (err == nil) != ok || err != nil && !errors.Is(err, ErrNoUser) {
			t.Errorf("%q: %v", spec, err)
		}
	}
}

// A part that is a number is that id or an error, whatever the files contain.
func FuzzFindUser(f *testing.F) {
	for _, spec := range []string{"root", "alice:staff", "7", "7:50000", "9223372036854775808", "+7", ":50", "1:"} {
		f.Add(spec, testPasswd, testGroups)
	}
	f.Fuzz(func(t *testing.T, spec, passwd, groups string) {
		u, err := FindUser(spec, []byte(passwd), []byte(groups))
		if err != nil {
			if !errors.Is(err, ErrNoUser) {
				t.Fatal(err)
			}
			return
		}
		if err := CheckIDs(spec); err != nil {
			t.Errorf("%q is %+v, but %v", spec, u, err)
		}
		if min(u.UID, u.GID) < 0 || max(u.UID, u.GID) > maxID || len(u.Groups) == 0 || u.Groups[0] != u.GID || !strings.HasPrefix(u.Home, "/") {
			t.Errorf("%q is %+v", spec, u)
		}
		name, group, _ := strings.Cut(spec, ":")
		for text, got := range map[string]int{name: u.UID, group: u.GID} {
			if n, err := strconv.Atoi(text); err == nil && n != got && name != group {
				t.Errorf("%q is %+v", spec, u)
			}
		}
	})
}
