package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/jsonstream"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
)

// Kind is a kind of object in an Engine.
type Kind string

// The kinds, in the order of removal: objects that use others come first.
const (
	Container Kind = "container"
	Network   Kind = "network"
	Volume    Kind = "volume"
	ImageKind Kind = "image"
)

// Kinds lists all kinds in the order of removal.
var Kinds = []Kind{Container, Network, Volume, ImageKind}

// Object is an object in an Engine that has a label.
type Object struct {
	Kind    Kind
	ID      string            // for the Engine's calls
	Name    string            // for messages
	Labels  map[string]string // of Fumehood's labels only those that the seal proves
	Foreign bool              // has Fumehood's labels, but without a valid seal
	Created time.Time         // zero if not reported
	State   string            // a container's: "running", "exited" ...
	Tags    []string          // an image's
	image   string            // ID of a container's image
	seal    string
}

// Objects lists the objects with a label, in the order of removal. label is "name" or "name=value". Without kinds, it
// lists every kind.
func (c *Client) Objects(ctx context.Context, label string, kinds ...Kind) ([]Object, error) {
	return c.find(ctx, make(client.Filters).Add("label", label), kinds)
}

// ListByPrefix lists the objects of the given kinds, networks or volumes, whose names begin with prefix.
func (c *Client) ListByPrefix(ctx context.Context, prefix string, kinds ...Kind) ([]Object, error) {
	all, err := c.find(ctx, make(client.Filters).Add("name", prefix), kinds) // the filter matches any part of a name
	return slices.DeleteFunc(all, func(o Object) bool { return !strings.HasPrefix(o.Name, prefix) }), err
}

// find lists the objects that match a filter, in the order of removal. Without kinds, it lists every kind.
func (c *Client) find(ctx context.Context, filter client.Filters, kinds []Kind) ([]Object, error) {
	if len(kinds) == 0 {
		kinds = Kinds
	}
	var all []Object
	for _, kind := range Kinds {
		if !slices.Contains(kinds, kind) {
			continue
		}
		some, err := c.list(ctx, kind, filter)
		if err != nil {
			return nil, c.translate(err, "list "+string(kind)+"s")
		}
		all = append(all, some...)
	}
	return all, nil
}

// list lists the objects of one kind.
func (c *Client) list(ctx context.Context, kind Kind, filter client.Filters) ([]Object, error) {
	var all []Object
	switch kind {
	case Container:
		res, err := c.api.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filter})
		if err != nil {
			return nil, err
		}
		for _, o := range res.Items {
			all = append(all, Object{
				Kind: kind, ID: o.ID, Name: containerName(o.Names, o.ID), Labels: o.Labels,
				Created: time.Unix(o.Created, 0), State: string(o.State), image: o.ImageID,
			})
		}
	case Network:
		res, err := c.api.NetworkList(ctx, client.NetworkListOptions{Filters: filter})
		if err != nil {
			return nil, err
		}
		for _, o := range res.Items {
			all = append(all, Object{Kind: kind, ID: o.ID, Name: o.Name, Labels: o.Labels, Created: o.Created})
		}
	case Volume:
		res, err := c.api.VolumeList(ctx, client.VolumeListOptions{Filters: filter})
		if err != nil {
			return nil, err
		}
		for _, o := range res.Items {
			created, _ := time.Parse(time.RFC3339, o.CreatedAt) // zero if not reported
			all = append(all, Object{Kind: kind, ID: o.Name, Name: o.Name, Labels: o.Labels, Created: created})
		}
	case ImageKind:
		res, err := c.api.ImageList(ctx, client.ImageListOptions{Filters: filter})
		if err != nil {
			return nil, err
		}
		for _, o := range res.Items {
			all = append(all, Object{
				Kind: kind, ID: o.ID, Name: firstOr(o.RepoTags, o.ID), Labels: o.Labels, Created: time.Unix(o.Created, 0),
				Tags: tags(o.RepoTags),
			})
		}
	}
	for i := range all {
		o := &all[i]
		o.seal = o.Labels[LabelSeal]
		names := []string{o.Name}
		if kind == ImageKind {
			names = o.Tags
		}
		claim := claims(o.Labels)
		var genuine bool
		o.Labels, genuine = c.secret.open(kind, names, o.Labels)
		o.Foreign = claim && !genuine
	}
	return all, nil
}

// askedImages is the number of images that are inspected one by one, which takes about a millisecond each. To list all
// images takes 8 ms with 60 of them.
const askedImages = 8

// Disown marks as foreign the containers that may have their seal from an image. Otherwise a seal copied to an image
// would make a container of that image genuine, once the original container of that name is gone. A container whose
// own image has another seal, or none, is left: its seal may be on an image that was made of it by docker commit. If
// its image cannot be inspected, no image may have its seal.
func (c *Client) Disown(ctx context.Context, objects []Object) error {
	type found struct {
		seal  string
		known bool
	}
	images := map[string]found{} // the containers'
	var unsure []*Object
	for i := range objects {
		o := &objects[i]
		if o.Kind != Container || o.seal == "" {
			continue
		}
		image, asked := images[o.image]
		if !asked && len(images) < askedImages {
			image.seal, image.known = c.imageSeal(ctx, o.image)
			images[o.image] = image
		}
		switch {
		case !image.known:
			unsure = append(unsure, o)
		case image.seal == o.seal:
			o.disown()
		}
	}
	if unsure == nil {
		return nil
	}
	res, err := c.api.ImageList(ctx, client.ImageListOptions{Filters: make(client.Filters).Add("label", LabelSeal)})
	if err != nil {
		return c.translate(err, "list images")
	}
	copied := map[string]bool{}
	for _, image := range res.Items {
		copied[image.Labels[LabelSeal]] = true
	}
	for _, o := range unsure {
		if !copied[o.seal] {
			continue
		}
		if seal, known := c.imageSeal(ctx, o.image); !known || seal == o.seal {
			o.disown()
		}
	}
	return nil
}

// imageSeal returns the seal of an image, "" without one. It is unknown of an image that cannot be inspected.
func (c *Client) imageSeal(ctx context.Context, id string) (seal string, known bool) {
	res, err := c.api.ImageInspect(ctx, id)
	if err != nil || res.Config == nil {
		return "", false
	}
	return res.Config.Labels[LabelSeal], true
}

// disown marks an object as foreign.
func (o *Object) disown() {
	maps.DeleteFunc(o.Labels, func(label, _ string) bool { return strings.HasPrefix(label, owner.LabelPrefix) })
	o.Foreign = true
}

// containerName returns a container's own name. Names with another slash are aliases in linked containers.
func containerName(names []string, id string) string {
	for _, name := range names {
		if name = strings.TrimPrefix(name, "/"); !strings.Contains(name, "/") {
			return name
		}
	}
	return id
}

// firstOr returns the first name, or id without a name. Old Engines list "<none>:<none>" for no name.
func firstOr(names []string, id string) string {
	if len(names) == 0 || strings.HasPrefix(names[0], "<none>") {
		return id
	}
	return names[0]
}

// Remove removes an object. A missing object is not an error. A container is killed first, and its anonymous volumes
// are removed with it. A network is removed after all of its containers are detached, including those of others. A
// volume or image in use is an ErrUnavailable.
func (c *Client) Remove(ctx context.Context, o Object) error {
	var err error
	switch o.Kind {
	case Container:
		_, err = c.api.ContainerRemove(ctx, o.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		if errdefs.IsConflict(err) { // another removal of it is running: wait for it
			err = c.awaitRemoved(ctx, o.ID)
		}
	case Network:
		_, err = c.api.NetworkRemove(ctx, o.ID, client.NetworkRemoveOptions{})
		// Most networks have no endpoints any more, because their containers are removed first.
		if err != nil && !errdefs.IsNotFound(err) {
			if err = c.detachAll(ctx, o.ID); err == nil {
				_, err = c.api.NetworkRemove(ctx, o.ID, client.NetworkRemoveOptions{})
			}
		}
	case Volume:
		_, err = c.api.VolumeRemove(ctx, o.ID, client.VolumeRemoveOptions{})
	case ImageKind:
		_, err = c.api.ImageRemove(ctx, o.ID, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	}
	return c.removalError(err, "remove "+string(o.Kind)+" "+o.Name)
}

// detachAll detaches all containers from a network. An endpoint whose container is gone is listed with "ep-" and its
// own id as the container's id. The Engine finds such an endpoint only by its name, and removes it only by force.
func (c *Client) detachAll(ctx context.Context, network string) error {
	res, err := c.api.NetworkInspect(ctx, network, client.NetworkInspectOptions{})
	if err != nil {
		return err
	}
	for id, endpoint := range res.Network.Containers {
		if strings.HasPrefix(id, "ep-") {
			id = endpoint.Name
		}
		_, err := c.api.NetworkDisconnect(ctx, network, client.NetworkDisconnectOptions{Container: id, Force: true})
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// removalError translates the error of a removal. A missing object is not an error.
func (c *Client) removalError(err error, op string) error {
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err):
		return &fumehood.Error{Op: op, Class: fumehood.ErrUnavailable, Err: cause{err}, Hint: "remove what uses it first"}
	}
	return c.translate(err, op)
}

func (c *Client) awaitRemoved(ctx context.Context, id string) error {
	within := c.speedup.Of(working)
	ctx, cancel := context.WithTimeoutCause(ctx, within, &silent{limit: within})
	defer cancel()
	wait := c.api.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionRemoved})
	select {
	case err := <-wait.Error:
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	case <-wait.Result:
		return nil
	}
}

// CreateVolume creates an empty volume.
func (c *Client) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	_, err := c.api.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: labels})
	return c.translate(err, "create volume "+name)
}

// HasVolume reports whether a volume of that name exists.
func (c *Client) HasVolume(ctx context.Context, name string) (bool, error) {
	_, err := c.api.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	return c.found(err, "inspect volume "+name)
}

// HasNetwork reports whether a network of that name exists.
func (c *Client) HasNetwork(ctx context.Context, name string) (bool, error) {
	_, err := c.api.NetworkInspect(ctx, name, client.NetworkInspectOptions{})
	return c.found(err, "inspect network "+name)
}

func (c *Client) found(err error, op string) (bool, error) {
	if errdefs.IsNotFound(err) {
		return false, nil
	}
	return err == nil, c.translate(err, op)
}

// FillVolume creates a volume with a copy of dir of the image. A single call of the Engine does both: it creates a
// container of the image with the new volume mounted at dir. The container is never started, and is removed
// afterwards.
func (c *Client) FillVolume(ctx context.Context, name, image, dir string, volumeLabels, containerLabels map[string]string) error {
	op := "fill volume " + name
	created, err := c.api.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:   name, // so that it can be found
		Config: &container.Config{Image: image, Entrypoint: []string{dir}, Labels: containerLabels},
		HostConfig: &container.HostConfig{
			NetworkMode: "none",
			Mounts: []mount.Mount{{
				Type: mount.TypeVolume, Source: name, Target: dir,
				VolumeOptions: &mount.VolumeOptions{Labels: c.secret.seal(Volume, name, volumeLabels)},
			}},
		},
	})
	if err != nil {
		return errors.Join(c.translate(err, op), c.Remove(context.WithoutCancel(ctx), Object{Kind: Volume, ID: name, Name: name}))
	}
	return c.Remove(context.WithoutCancel(ctx), Object{Kind: Container, ID: created.ID, Name: name})
}

// messages decodes a stream of the Engine's JSON messages.
func messages(r io.Reader) iter.Seq2[jsonstream.Message, error] {
	return func(yield func(jsonstream.Message, error) bool) {
		dec := json.NewDecoder(r)
		for {
			var m jsonstream.Message
			err := dec.Decode(&m)
			if errors.Is(err, io.EOF) || !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// SortForRemoval sorts objects in the order of removal.
func SortForRemoval(objects []Object) {
	slices.SortStableFunc(objects, func(a, b Object) int {
		return slices.Index(Kinds, a.Kind) - slices.Index(Kinds, b.Kind)
	})
}

// Subnets returns the subnets of all networks.
func (c *Client) Subnets(ctx context.Context) ([]netip.Prefix, error) {
	res, err := c.api.NetworkList(ctx, client.NetworkListOptions{})
	if err != nil {
		return nil, c.translate(err, "list networks")
	}
	var all []netip.Prefix
	for _, n := range res.Items {
		for _, pool := range n.IPAM.Config {
			if pool.Subnet.IsValid() {
				all = append(all, pool.Subnet)
			}
		}
	}
	return all, nil
}
