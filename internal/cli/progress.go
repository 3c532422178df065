package cli

import (
	"sync"
	"time"

	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/session/spec"
)

// progressEvery is the minimum time between two reports of a pull.
const progressEvery = 2 * time.Second

// pullProgress reports pulls as lines, one at the start and then at most one per progressEvery. It also reports each
// step of a build.
type pullProgress struct {
	mu     sync.Mutex
	tell   func(format string, args ...any)
	now    func() time.Time
	images map[string]*pull
}

type pull struct {
	last   time.Time
	layers map[string]provider.Progress
}

func newPullProgress(tell func(format string, args ...any)) *pullProgress {
	return &pullProgress{tell: tell, now: time.Now, images: map[string]*pull{}}
}

func (p *pullProgress) report(ev provider.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ev.Build {
		p.tell("building %s: %s", ev.Image, ev.Status)
		return
	}
	doing := "pulling"
	if ev.Status == "Unpacking" || ev.Status == "Exporting" { // the native provider reads files and the Engine's images too
		doing = "unpacking"
	}
	im := p.images[ev.Image]
	if im == nil {
		im = &pull{last: p.now(), layers: map[string]provider.Progress{}}
		p.images[ev.Image] = im
		p.tell("%s %s", doing, ev.Image)
	}
	if ev.Layer != "" && ev.Total > 0 {
		im.layers[ev.Layer] = ev
	}
	if p.now().Sub(im.last) < progressEvery {
		return
	}
	im.last = p.now()
	var current, total int64
	for _, l := range im.layers {
		current, total = current+l.Current, total+l.Total
	}
	p.tell("%s %s: %s of %s so far", doing, ev.Image, spec.FormatSize(current), spec.FormatSize(total))
}
