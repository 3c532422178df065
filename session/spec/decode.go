package spec

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood/internal/strict"
)

// Problem is a problem in a spec. It is a fumehood.ErrFile.
type Problem = strict.Problem

// types have readers of their own, because their YAML form differs from their Go type.
var types = map[reflect.Type]func(*strict.Decoder, *yaml.Node, string) any{
	reflect.TypeFor[Mounts](): readMounts,
	reflect.TypeFor[Ports]():  readPorts,
}

// mountTarget is the long form of a mount's container side.
type mountTarget struct {
	// Bind is the absolute path in the container.
	Bind string `yaml:"bind" form:"path" required:"true"`
	// Mode is ro (the default) for read-only or rw for writable.
	Mode string `yaml:"mode" form:"mode"`
}

func readMounts(d *strict.Decoder, n *yaml.Node, path string) any {
	var mounts Mounts
	for _, e := range d.Entries(n, path) {
		m := mountTarget{}
		switch v := e.Value; {
		case !forms["host path"].Takes(e.Key) || strings.ContainsRune(e.Key, 0):
			d.Problem(e.Line, path, forms["host path"].What(), fmt.Sprintf("%q", strict.Short(e.Key)), "")
		case v.Kind == yaml.MappingNode:
			d.Fields(v, e.Path, reflect.ValueOf(&m).Elem())
		case !strict.IsText(v) || !forms["target"].Takes(v.Value) || strings.ContainsRune(v.Value, 0):
			d.Wrong(v, e.Path, forms["target"].What()+", or {bind: PATH, mode: ro or rw}")
		default:
			m.Bind, m.Mode, _ = strings.Cut(v.Value, ":")
		}
		mounts = append(mounts, m.mount(e.Key))
	}
	return mounts
}

func readPorts(d *strict.Decoder, n *yaml.Node, path string) any {
	var ports Ports
	for _, e := range d.Entries(n, path) {
		host, err := strconv.ParseUint(e.Key, 10, 16)
		if err != nil || !forms["host port"].Takes(e.Key) {
			d.Problem(e.Line, path, forms["host port"].What(), fmt.Sprintf("%q", strict.Short(e.Key)), "")
			continue
		}
		values := []*yaml.Node{e.Value}
		if host == 0 && e.Value.Kind == yaml.SequenceNode {
			values = e.Value.Content
		}
		for _, value := range values {
			value = strict.Target(value)
			port, ok := strict.Integer(value)
			if !ok || port < 1 || port > 65535 {
				d.Wrong(value, e.Path, "a port from 1 to 65535")
				continue
			}
			ports = append(ports, Port{Host: uint16(host), Container: uint16(port)})
		}
	}
	return ports
}
