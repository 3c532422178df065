// Package memory is a provider whose state is in memory. It is the smallest driver of package box, so it is the template
// of a new one, and the reference for what box.Driver, box.Body and box.Unit ask for.
//
// An Engine stands for a daemon: it has the containers and their marks. Each Provider on it is like another process. A
// container is a PID namespace of this machine, whose first process is the guest, with a folder. Nothing else is
// isolated, so only root can use it, and only for tests.
package memory
