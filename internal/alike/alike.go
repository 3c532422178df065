// Package alike joins errors about many objects, such as samples, and lists a few of each kind.
package alike

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	maxKinds  = 20 // kinds that are listed
	maxEach   = 3  // errors of a kind that are listed
	maxPlaces = 10 // places that are listed for the other errors of a kind
)

// Errors collects errors. The zero value is empty.
type Errors struct {
	listed  []listed
	kinds   map[string]*kind
	dropped int      // errors of kinds beyond maxKinds
	outside []string // distinct paths that may not be read
}

type listed struct {
	err  error
	last *kind // the kind of which it is the last that is listed; nil if there is another
}

type kind struct {
	count  int
	places []string // of those that are not listed
}

// varying matches what differs between errors of one kind: paths and numbers.
var varying = regexp.MustCompile(`[^\s:,()"]*[/.][^\s:,()"]+|\b[0-9]+\b`)

// Add adds an error at a place, such as a file with a line and a sample. In full is the error with its place.
func (e *Errors) Add(place string, err, full error) {
	if o, ok := errors.AsType[interface {
		error
		Outside() string
	}](err); ok && !slices.Contains(e.outside, o.Outside()) {
		e.outside = append(e.outside, o.Outside())
	}
	key := varying.ReplaceAllString(err.Error(), "")
	k := e.kinds[key]
	switch {
	case k == nil && len(e.kinds) == maxKinds:
		e.dropped++
		return
	case k == nil && e.kinds == nil:
		e.kinds = map[string]*kind{}
		fallthrough
	case k == nil:
		k = &kind{}
		e.kinds[key] = k
	}
	switch k.count++; {
	case k.count < maxEach:
		e.listed = append(e.listed, listed{err: full})
	case k.count == maxEach:
		e.listed = append(e.listed, listed{full, k})
	case len(k.places) < maxPlaces:
		k.places = append(k.places, place)
	}
}

// Join returns the errors as one, or nil if there are none.
func (e *Errors) Join() error {
	var errs []error
	for _, l := range e.listed {
		errs = append(errs, l.err)
		if l.last != nil && l.last.count > maxEach {
			more, rest := l.last.count-maxEach, ""
			if more > len(l.last.places) {
				rest = ", ..."
			}
			errs = append(errs, fmt.Errorf("and %d more like it: %s%s", more, strings.Join(l.last.places, ", "), rest))
		}
	}
	if e.dropped > 0 {
		errs = append(errs, fmt.Errorf("%d more errors of other kinds", e.dropped))
	}
	if len(e.outside) > 1 {
		errs = append(errs, fmt.Errorf("all %d paths are allowed by: %s", len(e.outside), allowing(e.outside)))
	}
	return errors.Join(errs...)
}

// allowing returns the options that allow the paths: one for each, or for many the folder that has all, unless that is the root.
func allowing(paths []string) string {
	if dir := filepath.Dir(paths[0]); len(paths) > maxPlaces {
		for _, path := range paths {
			for up := filepath.Dir(dir); up != dir && !strings.HasPrefix(path, dir+string(filepath.Separator)); up = filepath.Dir(dir) {
				dir = up
			}
		}
		if dir != filepath.Dir(dir) {
			return "--allow-read " + dir
		}
	}
	return "--allow-read " + strings.Join(paths, " --allow-read ")
}
