package spec

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestVolumeLayers_Merge(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the paths in the table are not absolute on Windows")
	}
	workspace := Volume{fumehood.Mount{Host: "/ws", Container: "/workspace", Writable: true}, OriginWorkspace}
	volume := func(host, container string, writable bool, origin Origin) Volume {
		return Volume{fumehood.Mount{Host: host, Container: container, Writable: writable}, origin}
	}
	for says, c := range map[string]struct {
		layers VolumeLayers
		want   []Volume
	}{
		"the workspace alone": {VolumeLayers{}, []Volume{workspace}},
		"the workspace elsewhere": {
			VolumeLayers{Docker: Docker{Workdir: "/work/"}},
			[]Volume{volume("/ws", "/work", true, OriginWorkspace)},
		},
		"no workspace": {VolumeLayers{Docker: Docker{MountWorkspace: new(false)}}, nil},
		"spawn replaces a spec's mount": {
			VolumeLayers{
				Docker: Docker{ExtraMounts: Mounts{{Host: "/host/config", Container: "/app/config"}}},
				Spawn:  Mounts{{Host: "/host/config2", Container: "/app/config"}},
			},
			[]Volume{workspace, volume("/host/config2", "/app/config", false, OriginSpawn)},
		},
		"other spellings of the paths": {
			VolumeLayers{
				Docker: Docker{ExtraMounts: Mounts{{Host: "/host/config/", Container: "/app/config/", Writable: true}}},
				Spawn:  Mounts{{Host: "/host/config2", Container: "/app//./config"}},
			},
			[]Volume{workspace, volume("/host/config2", "/app/config", false, OriginSpawn)},
		},
		"in the order of the layers": {
			VolumeLayers{
				Docker: Docker{ExtraMounts: Mounts{{Host: "/a", Container: "/z"}, {Host: "/b", Container: "/y", Writable: true}}},
				Spawn:  Mounts{{Host: "/c/./x/", Container: "/b"}},
				Assets: map[string]Asset{"two": {Path: "in/2", SavePath: "out/2"}, "one": {Path: "1.txt"}},
			},
			[]Volume{
				workspace, volume("/a", "/z", false, OriginSpec), volume("/b", "/y", true, OriginSpec), volume("/c/x", "/b", false, OriginSpawn),
				volume("/assets/1.txt", "/static/1.txt", false, OriginAsset), volume("/assets/in/2", "/static/out/2", false, OriginAsset),
			},
		},
		"assets are last": {
			VolumeLayers{Spawn: Mounts{{Host: "/a", Container: "/static/data", Writable: true}}, Assets: map[string]Asset{"d": {Path: "data"}}},
			[]Volume{workspace, volume("/assets/data", "/static/data", false, OriginAsset)},
		},
		"a mount replaces the workspace": {
			VolumeLayers{Spawn: Mounts{{Host: "/other", Container: "/workspace"}}},
			[]Volume{volume("/other", "/workspace", false, OriginSpawn)},
		},
		"next to and above the workdir": {
			VolumeLayers{Docker: Docker{Workdir: "/a/b"}, Spawn: Mounts{{Host: "/x", Container: "/a"}, {Host: "/y", Container: "/a/bc"}}},
			[]Volume{volume("/ws", "/a/b", true, OriginWorkspace), volume("/x", "/a", false, OriginSpawn), volume("/y", "/a/bc", false, OriginSpawn)},
		},
		"a relative host path": {
			VolumeLayers{Docker: Docker{ExtraMounts: Mounts{{Host: "fixtures/", Container: "/fixtures", Writable: true}, {Host: "../data", Container: "/data"}}}},
			[]Volume{workspace, volume("/ws/fixtures", "/fixtures", true, OriginSpec), volume("/data", "/data", false, OriginSpec)},
		},
		"the later in one layer": {
			VolumeLayers{Spawn: Mounts{{Host: "/a", Container: "/x"}, {Host: "/b", Container: "/x"}}},
			[]Volume{workspace, volume("/b", "/x", false, OriginSpawn)},
		},
	} {
		t.Run(says, func(t *testing.T) {
			c.layers.Workspace, c.layers.AssetDir = "/ws", "/assets"
			got, err := c.layers.Merge()
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %v, %v\nwant %v", got, err, c.want)
			}
			if mounts := MountsOf(got); len(mounts) != len(got) || len(got) > 0 && mounts[0] != got[0].Mount {
				t.Errorf("MountsOf: got %v", mounts)
			}
			if again, err := c.layers.Merge(); err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("second Merge: got %v, %v", again, err)
			}
		})
	}
}

func TestMerge_invalidMounts(t *testing.T) {
	ws := t.TempDir()
	_, err := VolumeLayers{
		Workspace: ws,
		Docker:    Docker{ExtraMounts: Mounts{{Host: "/a", Container: "/workspace/deep/er"}, {Host: "/a", Container: "/x/.."}}},
		Spawn:     Mounts{{Host: "/b", Container: "/other/../workspace/x"}, {Container: "/c"}, {Host: "/d", Container: "rel"}},
		AssetDir:  ws,
		Assets:    map[string]Asset{"evil": {Path: "../x"}},
	}.Merge()
	for _, want := range []string{
		`extra_mounts: the mount "/a" to "/workspace/deep/er" lies below the working directory /workspace; mount it elsewhere, or put the files in the workspace`,
		`extra_mounts: the mount "/a" to "/x/.." needs`,
		`spawn: the mount "/b" to "/other/../workspace/x" lies below the working directory /workspace`,
		`spawn: the mount "" to "/c" needs`,
		`spawn: the mount "/d" to "rel" needs`,
		`static asset evil: path: wanted a relative path without .., found "../x"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %s", err, want)
		}
	}
	if !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("class: got %v", fumehood.ClassOf(err))
	}
	below := Mounts{{Host: ws, Container: "/workspace/x"}}
	if _, err := (VolumeLayers{Workspace: ws, Docker: Docker{MountWorkspace: new(false)}, Spawn: below}).Merge(); err == nil {
		t.Error("below a working directory that is not mounted: no error")
	}
	if _, err := (VolumeLayers{Workspace: "ws"}).Merge(); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("a relative workspace: %v", err)
	}
	if _, err := (VolumeLayers{Workspace: ws, Assets: map[string]Asset{"a": {Path: "a"}}}).Merge(); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("a relative folder of assets: %v", err)
	}
}

func TestMerge_inputUnchanged(t *testing.T) {
	extra, spawn := Mounts{{Host: "a/", Container: "/x/"}}, Mounts{{Host: "b", Container: "/x"}}
	if _, err := (VolumeLayers{Workspace: t.TempDir(), Docker: Docker{ExtraMounts: extra}, Spawn: spawn}).Merge(); err != nil {
		t.Fatal(err)
	}
	if extra[0] != (fumehood.Mount{Host: "a/", Container: "/x/"}) || spawn[0] != (fumehood.Mount{Host: "b", Container: "/x"}) {
		t.Errorf("mounts have changed: %v and %v", extra, spawn)
	}
}

func TestParseMount(t *testing.T) {
	for target, want := range map[string]fumehood.Mount{
		"/a":    {Host: "h", Container: "/a"},
		"/a:ro": {Host: "h", Container: "/a"},
		"/a:rw": {Host: "h", Container: "/a", Writable: true},
	} {
		if got, err := ParseMount("h", target); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", target, got, err, want)
		}
	}
	for _, target := range []string{"", "/", "a", "/a:", "/a:z", "/a:rw:ro", ":rw", "/a\n:x"} {
		if got, err := ParseMount("h", target); !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("%q: got %v, %v; want an ErrConfig", target, got, err)
		}
	}
	if _, err := ParseMount("", "/a"); !errors.Is(err, fumehood.ErrConfig) {
		t.Errorf("an empty host path: got %v", err)
	}
}

func TestCheckHosts(t *testing.T) {
	ws, outside := t.TempDir(), t.TempDir()
	inside := filepath.Join(ws, "inside")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(hosts ...string) error {
		var volumes []Volume
		for _, h := range hosts {
			volumes = append(volumes, Volume{fumehood.Mount{Host: h, Container: "/x"}, OriginSpec})
		}
		return CheckHosts(ws, volumes)
	}
	if err := check(ws, inside, outside); err != nil {
		t.Errorf("existing paths: got %v", err)
	}
	err := check(filepath.Join(ws, "missing"), inside, filepath.Join(outside, "missing"))
	if !errors.Is(err, fumehood.ErrConfig) || strings.Count(err.Error(), "no such path on this machine") != 2 {
		t.Errorf("missing paths: got %v", err)
	}
	if _, err := os.Lstat(filepath.Join(ws, "missing")); err == nil {
		t.Error("CheckHosts has created the path")
	}
}

func TestCheckHosts_links(t *testing.T) {
	base, outside := t.TempDir(), t.TempDir()
	ws := filepath.Join(base, "ws")
	alias := filepath.Join(base, "alias") // the workspace by another name
	links := map[string]string{alias: ws, filepath.Join(ws, "in"): filepath.Join(ws, "real"), filepath.Join(ws, "out"): outside, filepath.Join(ws, "up"): ".."}
	if err := os.MkdirAll(filepath.Join(ws, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	for link, to := range links {
		if err := os.Symlink(to, link); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	for _, c := range []struct {
		workspace, host string
		ok              bool
	}{
		{ws, filepath.Join(ws, "in"), true},
		{alias, filepath.Join(alias, "in"), true},
		{alias, alias, true},
		{ws, outside, true}, // chosen by the author of the spec
		{ws, filepath.Join(ws, "out"), false},
		{ws, filepath.Join(ws, "up", "ws"), true},
		{ws, filepath.Join(ws, "up"), false},
		{alias, filepath.Join(alias, "out"), false},
		{alias, filepath.Join(ws, "out"), false},
	} {
		err := CheckHosts(c.workspace, []Volume{{fumehood.Mount{Host: c.host, Container: "/x"}, OriginSpec}})
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "a symbolic link leads out of the workspace") {
			t.Errorf("%s in %s: %v", c.host, c.workspace, err)
		}
	}
}
