package engine

import (
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestTranslate_classes(t *testing.T) {
	const start = "Error response from daemon: "
	const oci = start + "failed to create task for container: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: "
	for _, c := range []struct {
		text  string
		class error
		port  bool
	}{
		{start + "driver failed programming external connectivity on endpoint a (b): Bind for 127.0.0.1:80 failed: port is already allocated", fumehood.ErrInfrastructure, true},
		{start + "driver failed programming external connectivity on endpoint a (b): Error starting userland proxy: listen tcp4 127.0.0.1:80: bind: address already in use", fumehood.ErrInfrastructure, true},
		{start + "failed to set up container networking: driver failed programming external connectivity on endpoint a (b): failed to bind host port for 127.0.0.1:80:172.17.0.2:80/tcp: address already in use", fumehood.ErrInfrastructure, true},
		{oci + `error mounting "/x" to rootfs at "/proc": "/var/lib/docker/overlay2/a/merged/proc" cannot be mounted because it is not of type proc: unknown`, fumehood.ErrConfig, false},
		{oci + `error mounting "/x" to rootfs at "/proc/sys/x": check proc-safe mount: "/var/lib/docker/overlay2/a/merged/proc/sys/x" cannot be mounted because it is inside /proc: unknown`, fumehood.ErrConfig, false},
		{oci + `error mounting "/x" to rootfs at "/y": permission denied: unknown`, fumehood.ErrInfrastructure, false},
	} {
		err := (&Client{}).translate(errors.New(c.text), "start container")
		if got := fumehood.ClassOf(err); !errors.Is(got, c.class) || errors.Is(err, ErrPort) != c.port || IsPassing(err) {
			t.Errorf("%q is %v, %v", c.text, got, err)
		}
	}
}
