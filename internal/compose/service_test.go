package compose

import (
	"testing"

	"github.com/fumehood/fumehood"
)

func TestService_Early(t *testing.T) {
	const waits = "command: sleep infinity, depends_on: {db: {condition: service_healthy}}"
	for name, tt := range map[string]struct {
		service string
		want    bool
	}{
		"what only idles":                {waits, true},
		"with a volume":                  {waits + ", volumes: ['vol:/x'], tmpfs: /t", true},
		"with a program of its own":      {"command: server, depends_on: {db: {condition: service_healthy}}", false},
		"several containers":             {waits + ", scale: 2", false},
		"what waits for nobody":          {"command: sleep infinity", false},
		"with a command after its start": {waits + ", post_start: [{command: 'true'}]", false},
		"with a content to be copied":    {waits + ", configs: [text]", false},
		"with a file of the host":        {waits + ", volumes: ['./service_test.go:/x:ro']", false},
		"with a secret's file":           {waits + ", secrets: [file]", false},
		"with a part of a volume":        {waits + ", volumes: [{type: volume, source: vol, target: /x, volume: {subpath: made}}]", false},
		"with a remote volume":           {waits + ", volumes: ['remote:/x']", false},
		"with the volumes of another":    {waits + ", volumes_from: [db]", false},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := applied(t, "services: {default: {image: i, "+tt.service+`}, db: {image: i, command: server, healthcheck: {test: "true"}}}
volumes: {vol: {}, remote: {driver_opts: {type: nfs, o: addr=db, device: ":/x"}}}
configs: {text: {content: hello}}
secrets: {file: {file: ./service_test.go}}
`, fumehood.Compose{AllowUnsafe: true}, Policy{Volume: "guest", Serve: true, Sockets: func(string) string { return "/sockets" }})
			if got := p.Services()[0].Early; got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
