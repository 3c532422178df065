// Command syscalls makes the system calls that seccomp profiles filter. It prints the result of each as a JSON
// object: the name of its error, or "ok". Where possible, the arguments are invalid, so that the calls have little
// effect.
package main

import (
	"encoding/json"
	"maps"
	"os"

	"golang.org/x/sys/unix"
)

// call is a system call by its number and arguments.
type call struct {
	number uintptr
	args   [6]uintptr
	fd     bool // the result is a descriptor
}

// calls are the system calls that every program can make.
var calls = map[string]call{
	"socket/unix":              {unix.SYS_SOCKET, [6]uintptr{unix.AF_UNIX, unix.SOCK_STREAM}, true},
	"socket/inet":              {unix.SYS_SOCKET, [6]uintptr{unix.AF_INET, unix.SOCK_STREAM}, true},
	"socket/inet6":             {unix.SYS_SOCKET, [6]uintptr{unix.AF_INET6, unix.SOCK_DGRAM}, true},
	"socket/netlink":           {unix.SYS_SOCKET, [6]uintptr{unix.AF_NETLINK, unix.SOCK_RAW}, true},
	"socket/vsock":             {unix.SYS_SOCKET, [6]uintptr{unix.AF_VSOCK, unix.SOCK_STREAM}, true},
	"socket/alg":               {unix.SYS_SOCKET, [6]uintptr{unix.AF_ALG, unix.SOCK_SEQPACKET}, true},
	"io_uring_setup":           {unix.SYS_IO_URING_SETUP, [6]uintptr{1}, true},
	"io_uring_enter":           {unix.SYS_IO_URING_ENTER, [6]uintptr{none}, false},
	"io_uring_register":        {unix.SYS_IO_URING_REGISTER, [6]uintptr{none}, false},
	"userfaultfd":              {unix.SYS_USERFAULTFD, [6]uintptr{userModeOnly}, true},
	"add_key":                  {unix.SYS_ADD_KEY, [6]uintptr{}, false},
	"request_key":              {unix.SYS_REQUEST_KEY, [6]uintptr{}, false},
	"keyctl":                   {unix.SYS_KEYCTL, [6]uintptr{none}, false},
	"bpf":                      {unix.SYS_BPF, [6]uintptr{none, 0, 0}, false},
	"perf_event_open":          {unix.SYS_PERF_EVENT_OPEN, [6]uintptr{}, true},
	"clone3":                   {unix.SYS_CLONE3, [6]uintptr{}, false},
	"prlimit64/own":            {unix.SYS_PRLIMIT64, [6]uintptr{0, unix.RLIMIT_CORE, none}, false},
	"prlimit64/other":          {unix.SYS_PRLIMIT64, [6]uintptr{none, unix.RLIMIT_CORE, none}, false},
	"prlimit64/read":           {unix.SYS_PRLIMIT64, [6]uintptr{none, unix.RLIMIT_CORE}, false},
	"setpriority/own":          {unix.SYS_SETPRIORITY, [6]uintptr{unix.PRIO_PROCESS, 0, 0}, false},
	"setpriority/own group":    {unix.SYS_SETPRIORITY, [6]uintptr{unix.PRIO_PGRP, 0, 0}, false},
	"setpriority/other":        {unix.SYS_SETPRIORITY, [6]uintptr{unix.PRIO_PROCESS, none}, false},
	"setpriority/other group":  {unix.SYS_SETPRIORITY, [6]uintptr{unix.PRIO_PGRP, none}, false},
	"setpriority/user":         {unix.SYS_SETPRIORITY, [6]uintptr{unix.PRIO_USER, none}, false},
	"setpriority/own user":     {unix.SYS_SETPRIORITY, [6]uintptr{unix.PRIO_USER, 0, 0}, false},
	"sched_setscheduler/own":   {unix.SYS_SCHED_SETSCHEDULER, [6]uintptr{0, unix.SCHED_IDLE, 0}, false},
	"sched_setscheduler/other": {unix.SYS_SCHED_SETSCHEDULER, [6]uintptr{none, unix.SCHED_IDLE, 0}, false},
	"sched_setscheduler/fork":  {unix.SYS_SCHED_SETSCHEDULER, [6]uintptr{none, unix.SCHED_IDLE | unix.SCHED_RESET_ON_FORK, 0}, false},
	"sched_setscheduler/usual": {unix.SYS_SCHED_SETSCHEDULER, [6]uintptr{none, unix.SCHED_NORMAL, 0}, false},
	"sched_setattr/own":        {unix.SYS_SCHED_SETATTR, [6]uintptr{0}, false},
	"sched_setattr/other":      {unix.SYS_SCHED_SETATTR, [6]uintptr{none}, false},
	"fcntl/lease":              {unix.SYS_FCNTL, [6]uintptr{none, unix.F_SETLEASE, unix.F_UNLCK}, false},
	"fcntl/delegation":         {unix.SYS_FCNTL, [6]uintptr{none, unix.F_SETLEASE + 16, 0}, false},
	"fcntl/usual":              {unix.SYS_FCNTL, [6]uintptr{none, unix.F_GETFD, 0}, false},
	"fcntl/of Linux":           {unix.SYS_FCNTL, [6]uintptr{none, unix.F_DUPFD_CLOEXEC, 0}, false},
	"kcmp":                     {unix.SYS_KCMP, [6]uintptr{uintptr(os.Getpid()), uintptr(os.Getpid()), none}, false},
}

// userModeOnly is a flag of userfaultfd that requires no privilege.
const userModeOnly = 1

// none is an invalid descriptor, command, flag or process id.
const none = 9999

func main() {
	found := map[string]string{}
	all := maps.Clone(calls)
	maps.Copy(all, multiplexed)
	for name, c := range all {
		result, _, errno := unix.Syscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5])
		found[name] = "ok"
		switch {
		case errno != 0:
			found[name] = unix.ErrnoName(errno)
		case c.fd:
			unix.Close(int(result))
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
		os.Exit(1)
	}
}
