// Command syscalls writes the numbers of Linux's system calls to the file named by its argument, a line for each name.
// They come from golang.org/x/sys, in the version that go.mod requires.
package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// armPrivate are the calls of Linux on ARM alone, which golang.org/x/sys does not list.
var armPrivate = map[string]int{
	"breakpoint": 0xf0001, "cacheflush": 0xf0002, "usr26": 0xf0003, "usr32": 0xf0004, "set_tls": 0xf0005, "get_tls": 0xf0006,
}

// x32Own are the calls that x32 has instead of those of amd64, in the order of their numbers, which begin at x32First.
var x32Own = []string{
	"rt_sigaction", "rt_sigreturn", "ioctl", "readv", "writev", "recvfrom", "sendmsg", "recvmsg", "execve", "ptrace",
	"rt_sigpending", "rt_sigtimedwait", "rt_sigqueueinfo", "sigaltstack", "timer_create", "mq_notify", "kexec_load",
	"waitid", "set_robust_list", "get_robust_list", "vmsplice", "move_pages", "preadv", "pwritev", "rt_tgsigqueueinfo",
	"recvmmsg", "sendmmsg", "process_vm_readv", "process_vm_writev", "setsockopt", "getsockopt", "io_setup", "io_submit",
	"execveat", "preadv2", "pwritev2",
}

const x32First = 512

// x32Lacks are the calls of amd64 that x32 does not have.
var x32Lacks = []string{
	"uselib", "_sysctl", "create_module", "get_kernel_syms", "query_module", "nfsservctl", "set_thread_area",
	"get_thread_area", "epoll_ctl_old", "epoll_wait_old", "vserver",
}

// notCalls are constants of golang.org/x/sys that are not the number of a call.
var notCalls = []string{"syscall_mask", "arch_specific_syscall"}

var constant = regexp.MustCompile(`(?m)^\s+SYS_(\w+)\s+=\s+(\d+)`)

// numbers returns the calls of an architecture, in Go's name for it, by name.
func numbers(folder, arch string) (map[string]int, error) {
	text, err := os.ReadFile(filepath.Join(folder, "unix", "zsysnum_linux_"+arch+".go"))
	if err != nil {
		return nil, err
	}
	all := map[string]int{}
	for _, m := range constant.FindAllStringSubmatch(string(text), -1) {
		name := strings.ToLower(m[1])
		if all[name], err = strconv.Atoi(m[2]); err != nil {
			return nil, err
		}
	}
	if len(all) < 300 {
		return nil, fmt.Errorf("only %d system calls of %s in %s", len(all), arch, folder)
	}
	for _, name := range notCalls {
		delete(all, name)
	}
	return all, nil
}

// x32 returns the calls of x32, without the bit that they all have.
func x32(amd64 map[string]int) map[string]int {
	all := maps.Clone(amd64)
	for _, name := range x32Lacks {
		delete(all, name)
	}
	for i, name := range x32Own {
		all[name] = x32First + i
	}
	return all
}

func text() ([]byte, error) {
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		return nil, fmt.Errorf("find golang.org/x/sys: %w", err)
	}
	var tables []map[string]int
	names := map[string]int{}
	for _, arch := range []string{"amd64", "386", "arm64", "arm"} {
		table, err := numbers(strings.TrimSpace(string(folder)), arch)
		if err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	maps.Copy(tables[3], armPrivate)
	tables = append(tables, x32(tables[0]))
	for _, table := range tables {
		maps.Copy(names, table)
	}
	out := bytes.NewBufferString("name amd64 386 arm64 arm x32\n")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out.WriteString(name)
		for _, table := range tables {
			if number, ok := table[name]; ok {
				fmt.Fprintf(out, " %d", number)
			} else {
				out.WriteString(" -")
			}
		}
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

func main() {
	out, err := text()
	if err == nil {
		err = os.WriteFile(os.Args[1], out, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "write the system calls:", err)
		os.Exit(1)
	}
}
