package docker_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider"
	"github.com/fumehood/fumehood/provider/docker"
	"github.com/fumehood/fumehood/test/tier"
)

// write copies a guest into a volume.
func (d *rawDaemon) write(volume, guest string) {
	d.t.Helper()
	var made struct{ ID string }
	d.ask("POST", "/containers/create", map[string]any{
		"Image": busybox, "HostConfig": map[string]any{"Binds": []string{volume + ":/v"}},
	}, &made)
	d.ask("PUT", "/containers/"+made.ID+"/archive?path=/v", tree(d.t, "guest", guest, "host/", ""), nil)
	d.ask("DELETE", "/containers/"+made.ID, nil, nil)
}

// guestVolumeOf returns the name and the labels of a version's volume.
func (d *rawDaemon) guestVolumeOf(version string) (name string, labels map[string]string) {
	d.t.Helper()
	var all struct {
		Volumes []struct {
			Name   string
			Labels map[string]string
		}
	}
	d.ask("GET", "/volumes", nil, &all)
	for _, v := range all.Volumes {
		if strings.HasPrefix(v.Name, "fumehood-guest-"+version) {
			return v.Name, v.Labels
		}
	}
	d.t.Fatalf("no guest volume of version %s", version)
	return "", nil
}

// TestGuest_poisoned places another program where the guest is expected. It works like the guest, but can be
// distinguished.
func TestGuest_poisoned(t *testing.T) {
	t.Parallel()
	const mark = "poison"
	quick := []string{"image_by_name", "volume_written_to", "other_volume_copied_labels", "image_with_guest_folder_link", "image_with_a_volume_at_a_link"}
	old := map[string]string{"fumehood.cache": "guest", "fumehood.made": "2001-02-03T04:05:06Z", "fumehood.owner": "v1 a b c 1 1"}
	for name, poison := range map[string]func(d *rawDaemon, version, guest string, start func(image string)) (image string){
		"image_by_name": func(d *rawDaemon, version, guest string, _ func(string)) string {
			volume := "fumehood-guest-" + version + "-" + runtime.GOARCH + "-aaaaaaaa"
			d.makeVolume(volume, old)
			d.write(volume, guest)
			d.importImage("fumehood-guest", version+"-"+runtime.GOARCH, tree(d.t, ".fumehood/", "", ".fumehood/guest", guest),
				"LABEL fumehood.cache=guest fumehood.guest-volume="+volume)
			return busybox
		},
		"volume_by_name_and_labels": func(d *rawDaemon, version, guest string, _ func(string)) string {
			volume := "fumehood-guest-" + version + "-" + runtime.GOARCH + "-aaaaaaaa"
			d.makeVolume(volume, old)
			d.write(volume, guest)
			return busybox
		},
		"volume_written_to": func(d *rawDaemon, version, guest string, start func(string)) string {
			start(busybox)
			volume, _ := d.guestVolumeOf(version)
			d.write(volume, guest)
			return busybox
		},
		"volume_with_copied_labels": func(d *rawDaemon, version, guest string, start func(string)) string {
			start(busybox)
			volume, labels := d.guestVolumeOf(version)
			d.ask("DELETE", "/volumes/"+volume, nil, nil)
			d.makeVolume(volume, labels)
			d.write(volume, guest)
			return busybox
		},
		"other_volume_copied_labels": func(d *rawDaemon, version, guest string, start func(string)) string {
			start(busybox)
			volume, labels := d.guestVolumeOf(version)
			d.ask("DELETE", "/volumes/"+volume, nil, nil)
			d.makeVolume(volume[:len(volume)-8]+"aaaaaaaa", labels)
			d.write(volume[:len(volume)-8]+"aaaaaaaa", guest)
			return busybox
		},
		"emptied_volume": func(d *rawDaemon, version, guest string, start func(string)) string {
			start(busybox)
			volume, labels := d.guestVolumeOf(version)
			d.ask("DELETE", "/volumes/"+volume, nil, nil)
			d.makeVolume(volume, labels)
			return imageWith(d, version, guest)
		},
		"image_with_a_guest": func(d *rawDaemon, version, guest string, _ func(string)) string {
			return imageWith(d, version, guest)
		},
		"image_with_guest_folder_link": func(d *rawDaemon, version, guest string, _ func(string)) string {
			d.importImage("fumehood-test/poison", version, tree(
				d.t, "bin/", "", "bin/busybox", busyboxProgram(d), "bin/sh", "-> busybox", "bin/tail", "-> busybox", "l/", "", "fh/", "", "fh/guest", guest, "l/link", "-> /fh", ".fumehood", "-> /l/link",
			), "ENV PATH=/bin")
			return "fumehood-test/poison:" + version
		},
		"image_with_a_volume_of_a_guest": func(d *rawDaemon, version, guest string, _ func(string)) string {
			return imageWith(d, version, guest, "VOLUME /.fumehood")
		},
		"image_with_volume_over_guest": func(d *rawDaemon, version, guest string, _ func(string)) string {
			return imageWith(d, version, guest, "VOLUME /.fumehood/guest")
		},
		"image_with_a_volume_at_a_link": func(d *rawDaemon, version, guest string, _ func(string)) string {
			return imageWith(d, version, guest, "VOLUME /link")
		},
		"image_with_volume_in_volume": func(d *rawDaemon, version, guest string, _ func(string)) string {
			return imageWith(d, version, guest, "VOLUME /dir", "VOLUME /dir/link")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !slices.Contains(quick, name) {
				tier.Need(t, tier.CI)
			}
			d, version := newRawDaemon(t), guestVersion(t)
			run := func(image string) (*fumehood.Result, error) {
				p := newProvider(t, docker.Options{})
				p.OtherGuest(version)
				sb, err := p.Start(t.Context(), fumehood.Spec{Image: image})
				if err != nil {
					return nil, err
				}
				res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"/bin/busybox", "sh", "-c", "tail -c 6 /.fumehood/guest; exit 3"}})
				if err := sb.Close(t.Context()); err != nil {
					t.Error(err)
				}
				return res, err
			}
			image := poison(d, version, string(slices.Concat(genuineGuest(t), []byte(mark))), func(image string) {
				if _, err := run(image); err != nil {
					t.Fatal(err)
				}
			})
			res, err := run(image)
			switch {
			case err != nil && image == busybox:
				t.Fatal(err)
			case err != nil:
				t.Log(err) // such an image is rejected
			case name == "image_with_guest_folder_link":
				t.Error("the sandbox started, although the link decides which program is the guest")
			case res.Outcome != fumehood.Exited || res.ExitCode != 3 || res.Stdout.Text() == mark:
				t.Errorf("%s with code %d, and the guest ends with %q", res.Outcome, res.ExitCode, res.Stdout.Text())
			}
		})
	}
}

// An image can give its containers any label. The description of a sandbox must come only from its own labels.
func TestOpen_imageLabels(t *testing.T) {
	t.Parallel()
	name := "labeled-" + strings.ToLower(rand.Text()[:8])
	d := newRawDaemon(t)
	d.importImage("fumehood-test/foreign", name, tree(t, "x", ""), `LABEL "fumehood.label.task"="another"`, `LABEL "fumehood.label.own"="another"`)
	p := newProvider(t, docker.Options{})
	want := map[string]string{"own": "mine"}
	sb := start(t, p, fumehood.Spec{Image: "fumehood-test/foreign:" + name, Name: name, Keep: true, TTL: time.Hour, Labels: want})
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if _, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{name}}); err != nil {
			t.Error(err)
		}
	})
	again, err := newProvider(t, docker.Options{}).Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, got := range []map[string]string{sb.Info().Labels, again.Info().Labels} {
		if !maps.Equal(got, want) {
			t.Errorf("it has %q", got)
		}
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// An image made of a kept sandbox has its labels. The sandbox must stay the user's.
func TestOpen_committed(t *testing.T) {
	t.Parallel()
	name := "committed-" + strings.ToLower(rand.Text()[:8])
	d := newRawDaemon(t)
	p := newProvider(t, docker.Options{})
	start(t, p, fumehood.Spec{Image: busybox, Name: name, Keep: true, TTL: time.Hour})
	image := "fumehood-test/committed:" + name
	d.ask("POST", "/commit?container="+name+"-default-1&repo=fumehood-test/committed&tag="+name, nil, nil)
	t.Cleanup(func() { d.ask("DELETE", "/images/"+image+"?force=1", nil, nil) })
	again, err := newProvider(t, docker.Options{}).Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	res, err := again.Exec(t.Context(), fumehood.Cmd{Args: []string{"sh", "-c", "exit 7"}})
	if err != nil || res.ExitCode != 7 {
		t.Errorf("got %+v, %v", res, err)
	}
	if err := again.Close(t.Context()); err != nil {
		t.Error(err)
	}
	kept, err := p.Kept(t.Context())
	if err != nil || !slices.ContainsFunc(kept, func(k provider.KeptSandbox) bool { return k.Name == name }) {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	left, err := p.Cleanup(t.Context(), provider.CleanupOptions{Names: []string{name}})
	if err != nil || !slices.ContainsFunc(left, func(l provider.Leftover) bool { return l.Name == name+"-default-1" && l.Removed }) {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestCleanup_foreign has containers and volumes with labels of a dead owner, or of a kept sandbox.
func TestCleanup_foreign(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	prefix := "foreign-" + strings.ToLower(rand.Text()[:8])
	d := newRawDaemon(t)
	labels := map[string]string{
		"fumehood.owner": "v1 a b c 1 1", "fumehood.lease": "2001-02-03T04:05:06Z", "fumehood.sandbox": prefix, "fumehood.kept": "true",
		"com.docker.compose.project": prefix, "com.docker.compose.service": "default",
	}
	container := func(name, image string, labels map[string]string) {
		t.Helper()
		d.ask("POST", "/containers/create?name="+name, map[string]any{"Image": image, "Cmd": []string{"sleep", "1000"}, "Labels": labels}, nil)
		t.Cleanup(func() { d.ask("DELETE", "/containers/"+name+"?force=1", nil, nil) })
	}
	image := func(tag string, labels map[string]string) string {
		t.Helper()
		var changes []string
		for name, value := range labels {
			changes = append(changes, fmt.Sprintf("LABEL %q=%q", name, value))
		}
		d.importImage("fumehood-test/foreign", prefix+tag, tree(t, "x", ""), changes...)
		return "fumehood-test/foreign:" + prefix + tag
	}
	labelsOf := func(container string) map[string]string {
		t.Helper()
		var got struct {
			Config struct{ Labels map[string]string }
		}
		d.ask("GET", "/containers/"+container+"/json", nil, &got)
		return got.Config.Labels
	}
	p := newProvider(t, docker.Options{})
	p.OnlyNamed(prefix)

	container(prefix+"-labels", busybox, labels)
	container(prefix+"-image", image("-a", labels), nil)
	d.makeVolume(prefix+"-volume", labels)
	// The labels of a genuine sandbox on other objects, and on an image, from which a container of the same name
	// inherits them.
	genuine := start(t, p, fumehood.Spec{Image: busybox, Name: prefix + "-genuine", Keep: true, TTL: time.Hour})
	sealed := labelsOf(prefix + "-genuine-default-1")
	container(prefix+"-copy", busybox, sealed)
	d.makeVolume(prefix+"-genuine-default-1", sealed)
	if _, err := p.Cleanup(ctx, provider.CleanupOptions{Names: []string{genuine.Info().Name}}); err != nil {
		t.Fatal(err)
	}
	container(prefix+"-genuine-default-1", image("-b", sealed), nil)

	foreign := []string{"-copy", "-genuine-default-1", "-genuine-default-1", "-image", "-labels", "-volume"}
	cleanedUp := func(opts provider.CleanupOptions, removed func(name string) bool) {
		t.Helper()
		left, err := p.Cleanup(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range left {
			name := strings.TrimPrefix(l.Name, prefix)
			got = append(got, name)
			if !l.Foreign || l.Kept || l.Sandbox != "" || l.Owner != "unknown" || l.Removed != removed(name) {
				t.Errorf("%+v", l)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, foreign) {
			t.Errorf("listed %v, want %v", got, foreign)
		}
	}
	cleanedUp(provider.CleanupOptions{Caches: true}, func(string) bool { return false })
	if kept, err := p.Kept(ctx); err != nil || slices.ContainsFunc(kept, func(k provider.KeptSandbox) bool { return strings.HasPrefix(k.Name, prefix) }) {
		t.Errorf("kept: %+v, %v", kept, err)
	}
	for _, name := range []string{prefix, prefix + "-genuine"} {
		if _, err := p.Open(ctx, name); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("opened %s: %v", name, err)
		}
	}
	for _, opts := range []provider.CleanupOptions{{Names: []string{prefix}}, {Foreign: []string{prefix + "-none"}}} {
		if left, err := p.Cleanup(ctx, opts); !errors.Is(err, fumehood.ErrConfig) || left != nil {
			t.Errorf("%+v: %v, %v", opts, left, err)
		}
	}
	cleanedUp(provider.CleanupOptions{Foreign: []string{prefix + "-image"}}, func(name string) bool { return name == "-image" })
	foreign = slices.Delete(foreign, 3, 4)
	// With more images than are inspected one by one, the first containers are judged by the list of images.
	for i := range 9 {
		name := fmt.Sprintf("-other%d", i)
		container(prefix+name, image(name, map[string]string{"fumehood.seal": name, "fumehood.owner": labels["fumehood.owner"]}), nil)
		foreign = append(foreign, name)
	}
	slices.Sort(foreign)
	cleanedUp(provider.CleanupOptions{Caches: true}, func(string) bool { return false })
	cleanedUp(provider.CleanupOptions{Foreign: []string{prefix + "*"}}, func(string) bool { return true })
}

// imageWith creates an image with busybox, a guest, and a link to the guest's folder.
func imageWith(d *rawDaemon, version, guest string, changes ...string) string {
	d.t.Helper()
	program := busyboxProgram(d)
	d.importImage("fumehood-test/poison", version, tree(
		d.t, "bin/", "", "bin/busybox", program, "bin/sh", "-> busybox", "bin/tail", "-> busybox", ".fumehood/", "", ".fumehood/guest", guest, "link", "-> dir/link", "dir/", "", "dir/link", "-> ../.fumehood",
	), append(changes, "ENV PATH=/bin")...)
	return "fumehood-test/poison:" + version
}

// theBusybox caches the result of busyboxProgram for several tests.
var theBusybox struct {
	sync.Mutex
	program string
}

// busyboxProgram reads busybox from its image.
func busyboxProgram(d *rawDaemon) string {
	d.t.Helper()
	theBusybox.Lock()
	defer theBusybox.Unlock()
	if theBusybox.program != "" {
		return theBusybox.program
	}
	p := newProvider(d.t, docker.Options{})
	sb := start(d.t, p, fumehood.Spec{Image: busybox})
	content, err := sb.ReadFile(d.t.Context(), "/bin/busybox", fumehood.ReadOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	theBusybox.program = string(content)
	return theBusybox.program
}
