package compose

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/filetest"
)

func TestLoad_keepPorts(t *testing.T) {
	const keep = "x-fumehood: {keep_ports: true}\n"
	for name, c := range map[string]struct {
		text    string
		allowed bool
	}{
		"loopback":             {keep + "services: {a: {image: i, ports: ['127.0.0.1:80:80', '127.1.2.3:81:80', '[::1]:82:80', '83:80']}}", true},
		"replaced":             {"services: {a: {image: i, ports: ['0.0.0.0:80:80']}}", true},
		"all addresses":        {keep + "services: {a: {image: i, ports: ['0.0.0.0:80:80']}}", false},
		"all of IPv6":          {keep + "services: {a: {image: i, ports: ['[::]:80:80']}}", false},
		"another address":      {keep + "services: {a: {image: i, ports: [{target: 80, published: '80', host_ip: 192.0.2.1}]}}", false},
		"mapped":               {keep + "services: {a: {image: i, ports: [{target: 80, published: '80', host_ip: '::ffff:192.0.2.1'}]}}", false},
		"an unstarted service": {keep + "services: {a: {image: i}, b: {image: i, scale: 0, ports: ['0.0.0.0:80:80']}}", false},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(filetest.Lay(t, map[string]string{"compose.yaml": c.text}), "compose.yaml")
			_, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{file}})
			if c.allowed && err != nil || !c.allowed && (!errors.Is(err, fumehood.ErrFile) || !strings.Contains(err.Error(), "this is not safe") || !strings.Contains(err.Error(), ".ports: ")) {
				t.Errorf("got %v", err)
			}
			if _, err := Load(t.Context(), "box", fumehood.Compose{Files: []string{file}, AllowUnsafe: true}); err != nil {
				t.Errorf("allowed as unsafe: %v", err)
			}
		})
	}
}
