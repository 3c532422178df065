package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/envimage"
	"github.com/fumehood/fumehood/internal/image"
	"github.com/fumehood/fumehood/internal/registry"
	"github.com/fumehood/fumehood/internal/taskfile"
	"github.com/fumehood/fumehood/provider"
)

// ImagePlan lists the images that a task needs.
type ImagePlan struct {
	Storage provider.ImageStorage
	// Images are in the order in which a run first needs them, each once.
	Images []*PlannedImage
}

// PlannedImage is an image that a task needs.
type PlannedImage struct {
	provider.NeededImage
	Samples int   // number of samples that need it, also for their graders
	Here    bool  // the provider has it
	Size    int64 // compressed bytes, according to its registry; -1 if unknown
	Err     error // why it could not be looked up here or in its registry

	layers []registry.Layer
	last   string // the last sample that was counted
}

// lookups is how many images are looked up at once.
const lookups = 8

// ImagePlanner returns the provider as one that lists images, or an ErrUnsupported.
func ImagePlanner(p fumehood.Provider) (provider.ImagePlanner, error) {
	if planner, ok := p.(provider.ImagePlanner); ok {
		return planner, nil
	}
	return nil, &fumehood.Error{Op: "plan images", Class: fumehood.ErrUnsupported, Err: fmt.Errorf("provider %s fetches no images ahead", p.Name())}
}

// ImageFetcher returns a provider that lists images as one that fetches them, or an ErrUnsupported.
func ImageFetcher(p provider.ImagePlanner) (provider.ImageFetcher, error) {
	if f, ok := p.(provider.ImageFetcher); ok {
		return f, nil
	}
	return nil, &fumehood.Error{
		Op: "fetch images", Class: fumehood.ErrUnsupported, Err: errors.New("the nodes of a cluster pull images themselves"),
		Hint: "print a daemon set for them with --print-daemonset, and pipe it into `kubectl apply -f -`",
	}
}

// PlanImages returns the images that a task needs, and which of them the provider has. With sizes it asks the registries of
// all images that are pulled. Nothing is pulled, built or started. Errors of single images are in the plan.
func PlanImages(ctx context.Context, p provider.ImagePlanner, f *taskfile.File, sizes bool) (*ImagePlan, error) {
	storage, err := p.ImageStorage(ctx)
	if err != nil {
		return nil, err
	}
	plan := &ImagePlan{Storage: storage}
	if err := plan.collect(ctx, p, f); err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(lookups)
	for _, i := range plan.Images {
		group.Go(func() error {
			i.lookUp(ctx, p, sizes, cmp.Or(i.Platform, storage.Platform))
			return fumehood.Cause(ctx)
		})
	}
	if err := group.Wait(); err != nil {
		return nil, &fumehood.Error{Op: "plan images", Class: fumehood.ErrCanceled, Err: err}
	}
	return plan, nil
}

// collect adds the images of all sandboxes of a task.
func (p *ImagePlan) collect(ctx context.Context, planner provider.ImagePlanner, f *taskfile.File) error {
	sandboxes, err := f.Sandboxes()
	if err != nil {
		return err
	}
	known := map[string][]provider.NeededImage{} // by what the images depend on
	byKey := map[provider.NeededImage]*PlannedImage{}
	for _, s := range sandboxes {
		key := image.HashOf([]any{s.Spec.Image, s.Spec.Compose})
		if s.Build != nil {
			key = "build " + s.Build.File
		}
		all, ok := known[key]
		if !ok {
			if s.Build != nil {
				all, err = envimage.NeededImages(s.Build)
			} else {
				all, err = planner.NeededImages(ctx, s.Spec)
			}
			if err != nil {
				return fmt.Errorf("sample %q: %w", s.Sample, err)
			}
			known[key] = all
		}
		for _, i := range all {
			p.countNeed(i, s.Sample, byKey)
		}
	}
	return nil
}

// countNeed counts that a sample needs an image.
func (p *ImagePlan) countNeed(i provider.NeededImage, sample string, byKey map[provider.NeededImage]*PlannedImage) {
	if i.Kind == provider.NeededBase && !p.Storage.BasesApart {
		i.Kind = provider.NeededPull
	}
	key := i
	if i.Kind.Fetched() {
		key.Ref = image.Familiar(i.Ref)
	}
	planned := byKey[key]
	if planned == nil {
		planned = &PlannedImage{NeededImage: i, Size: -1}
		byKey[key] = planned
		p.Images = append(p.Images, planned)
	}
	if planned.Samples == 0 || planned.last != sample {
		planned.Samples++
		planned.last = sample
	}
}

// lookUp finds out whether the provider has an image, and with sizes, which layers its registry has for a platform.
func (i *PlannedImage) lookUp(ctx context.Context, p provider.ImagePlanner, sizes bool, platform string) {
	i.Here, i.Err = p.HasNeeded(ctx, i.NeededImage)
	if i.Err != nil || !sizes || i.Kind != provider.NeededPull && i.Kind != provider.NeededBase {
		return
	}
	if i.layers, i.Err = (registry.Access{}).Layers(ctx, i.Ref, platform); i.Err != nil {
		return
	}
	i.Size = 0
	for _, l := range i.layers {
		i.Size += l.Size
	}
}

// ImageTotals are sums over the images of a plan that are pulled and whose size is known, in compressed bytes.
type ImageTotals struct {
	Images             int   // all
	Bytes, UniqueBytes int64 // of all; UniqueBytes counts each layer once
	Missing            int   // those that are not here
	MissingBytes       int64 // of the layers that no image here has, each once
	Failed             int   // images that could not be looked up, which the other sums leave out
}

// Totals returns the sums over a plan with sizes.
func (p *ImagePlan) Totals() (t ImageTotals) {
	var all, here layerSet
	for _, i := range p.Images {
		switch {
		case i.Err != nil:
			t.Failed++
		case i.Size >= 0:
			t.Images++
			t.Bytes += i.Size
			t.UniqueBytes += all.include(i.layers)
			if i.Here {
				here.include(i.layers)
			}
		}
	}
	for _, i := range p.Images {
		if i.Err == nil && i.Size >= 0 && !i.Here {
			t.Missing++
			t.MissingBytes += here.include(i.layers)
		}
	}
	return t
}

// layerSet holds layers by digest.
type layerSet map[string]bool

// include adds layers, and returns the size of those that are new.
func (s *layerSet) include(layers []registry.Layer) (size int64) {
	if *s == nil {
		*s = layerSet{}
	}
	for _, l := range layers {
		if !(*s)[l.Digest] {
			(*s)[l.Digest] = true
			size += l.Size
		}
	}
	return size
}

// size returns the size of the layers that the set does not have.
func (s layerSet) size(layers []registry.Layer) (size int64) {
	for _, l := range layers {
		if !s[l.Digest] {
			size += l.Size
		}
	}
	return size
}

// errUnsized is the error of an image that a limit cannot count.
var errUnsized = errors.New("its size is not known, so that it cannot be counted for the limit")

// Choose returns the images to fetch, in order. maxBytes limits the compressed size of their layers, each counted once, without
// those of images that are here; 0 means no limit. The first image that would exceed it is left, with all behind it. Images
// without a known size get an error and are not fetched if there is a limit.
func (p *ImagePlan) Choose(maxBytes int64) (fetch, left []*PlannedImage) {
	var have layerSet
	for _, i := range p.Images {
		if i.Here {
			have.include(i.layers)
		}
	}
	var total int64
	for _, i := range p.Images {
		if i.Here || !i.Kind.Fetched() {
			continue
		}
		if maxBytes > 0 && i.Err == nil && i.Size < 0 {
			i.Err = errUnsized
		}
		switch {
		case i.Err != nil:
		case len(left) > 0, maxBytes > 0 && have.size(i.layers) > maxBytes-total:
			left = append(left, i)
		default:
			total += have.include(i.layers)
			fetch = append(fetch, i)
		}
	}
	return fetch, left
}

// FetchImages makes the provider have images, so many at once, started in order. done is called for each when it has ended, one
// at a time; nil disables it. A failure is in the image's Err, and does not stop the others. The error is an ErrCanceled if ctx has ended.
func FetchImages(ctx context.Context, p provider.ImageFetcher, images []*PlannedImage, atOnce int, done func(*PlannedImage)) error {
	ended := make(chan *PlannedImage)
	var fetching errgroup.Group
	fetching.SetLimit(atOnce)
	go func() {
		defer close(ended)
		for _, i := range images {
			fetching.Go(func() error {
				if i.Err = fumehood.Cause(ctx); i.Err == nil {
					i.Err = p.FetchImage(ctx, i.NeededImage)
				}
				ended <- i
				return nil
			})
		}
		_ = fetching.Wait() // each image has its error
	}()
	for i := range ended {
		if i.Err == nil {
			i.Here = true
		}
		if done != nil {
			done(i)
		}
	}
	if err := fumehood.Cause(ctx); err != nil {
		return &fumehood.Error{Op: "fetch images", Class: fumehood.ErrCanceled, Err: err}
	}
	return nil
}

// Failures returns the error for the images of a plan that have one, or nil. op is the operation. Its class is that of an
// infrastructure failure, whatever the images' own errors are.
func (p *ImagePlan) Failures(op string) error {
	var lines []string
	for _, i := range p.Images {
		if i.Err != nil {
			text := i.Err.Error()
			if !strings.Contains(text, i.Ref) {
				text = i.Ref + ": " + text
			}
			lines = append(lines, text)
		}
	}
	if lines == nil {
		return nil
	}
	return &fumehood.Error{Op: op, Class: fumehood.ErrInfrastructure, Err: fmt.Errorf("%d of %d images failed:\n%s", len(lines), len(p.Images), strings.Join(lines, "\n"))}
}
