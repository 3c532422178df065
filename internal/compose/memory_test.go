package compose

import (
	"slices"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestApply_sharedMemory(t *testing.T) {
	t.Parallel()
	const mounts = "mem_limit: 64m, volumes: ['vol:/v']"
	for name, c := range map[string]struct{ one, other, volume, want string }{
		"no size":           {mounts, mounts, "{type: tmpfs, device: tmpfs}", "size=134217728"},
		"other options":     {mounts, mounts, "{type: tmpfs, device: tmpfs, o: 'mode=1777'}", "mode=1777,size=134217728"},
		"small":             {mounts, mounts, "{type: tmpfs, device: tmpfs, o: 'size=128M'}", "size=128M"},
		"large":             {mounts, mounts, "{type: tmpfs, device: tmpfs, o: 'size=1g,mode=1777'}", "size=1g,mode=1777,size=134217728"},
		"two":               {mounts, mounts, "{type: tmpfs, device: tmpfs, o: 'size=1m,size=1g'}", "size=1m,size=1g,size=134217728"},
		"endless":           {mounts, mounts, "{type: tmpfs, device: tmpfs, o: size=0}", "size=0,size=134217728"},
		"of the machine":    {mounts, mounts, "{type: tmpfs, device: tmpfs, o: 'size=90%'}", "size=90%,size=134217728"},
		"blocks":            {mounts, mounts, "{type: tmpfs, device: tmpfs, o: nr_blocks=10000000}", "nr_blocks=10000000,size=134217728"},
		"few blocks":        {mounts, mounts, "{type: tmpfs, device: tmpfs, o: nr_blocks=100}", "nr_blocks=100"},
		"of one":            {mounts, "mem_limit: 64m", "{type: tmpfs, device: tmpfs}", "size=67108864"},
		"of two and one":    {mounts + ", scale: 2", mounts, "{type: tmpfs, device: tmpfs}", "size=201326592"},
		"none is no tmpfs":  {mounts, mounts, "{}", ""},
		"limits by default": {"volumes: ['vol:/v']", "mem_limit: 64m", "{type: tmpfs, device: tmpfs}", "size=1073741824"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, changes := applied(t, "services: {a: {image: i, "+c.one+"}, b: {image: i, "+c.other+"}}\nvolumes: {vol: {driver_opts: "+c.volume+"}}",
				fumehood.Compose{AllowUnsafe: true}, Policy{Limits: fumehood.Limits{Memory: 1 << 30}})
			var noted, was string
			for _, change := range changes {
				if change.Key == "volumes.vol.driver_opts.o" {
					noted, was = change.To, change.From
				}
			}
			if got := p.project.Volumes["vol"].DriverOpts["o"]; got != c.want || noted != "" && noted != c.want || got != was && noted == "" && was != "" {
				t.Errorf("the options are %q, the change has %q", got, noted)
			}
		})
	}
	text := "services: {a: {image: i, " + mounts + "}, b: {image: i, volumes: ['vol:/v']}}\nvolumes: {vol: {driver_opts: {type: tmpfs, device: tmpfs}}}"
	p, _ := applied(t, text, fumehood.Compose{AllowUnsafe: true}, Policy{Limits: fumehood.Limits{Memory: fumehood.NoLimit}})
	if got := p.project.Volumes["vol"].DriverOpts["o"]; got != "" {
		t.Errorf("with an unlimited service: got %q, want no size", got)
	}
	p, changes := applied(t, "services: {a: {image: i, mem_limit: 64m, shm_size: 100g}, b: {image: i, ipc: 'service:a'}}", fumehood.Compose{}, Policy{})
	if got := p.project.Services["a"].ShmSize; got != 64<<20 || len(changes) == 0 {
		t.Errorf("shm_size is %d, want that of mem_limit", got)
	}
}

func TestProject_Boundless(t *testing.T) {
	t.Parallel()
	p, _ := applied(t, `services:
  little: {image: i, mem_limit: 1g}
  none: {image: i}
  all: {image: i, mem_limit: 8g}
  deployed: {image: i, deploy: {resources: {limits: {memory: 9g}}}}
  swapped: {image: i, mem_limit: 1g, memswap_limit: 1000t}
`, fumehood.Compose{}, Policy{})
	if got := p.Boundless(8 << 30); !slices.Equal(got, []string{"all", "deployed", "swapped"}) {
		t.Errorf("got %q", got)
	}
}
