//go:build linux && (amd64 || arm64)

package native_test

import (
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/conformance"
	"github.com/fumehood/fumehood/provider/native"
)

func TestExec_manyAtOnce(t *testing.T) {
	t.Parallel()
	const commands = 60
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 2*commands + 10}})
	conformance.CheckManyCommands(t, sb, commands)
}

func TestExec_processLimit(t *testing.T) {
	t.Parallel()
	sb := start(t, newProvider(t, native.Options{}), fumehood.Spec{Image: busybox, Limits: fumehood.Limits{PIDs: 100}})
	conformance.CheckProcessLimit(t, sb, 100, "", "nobody")
}
