package imagestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/test/tier"
)

// helperVariable makes this program get an image: STORE|REFERENCE.
const helperVariable = "FUMEHOOD_TEST_GET_IMAGE"

func TestMain(m *testing.M) {
	if job, ok := os.LookupEnv(helperVariable); ok {
		os.Exit(helper(job))
	}
	os.Exit(m.Run())
}

func helper(job string) int {
	dir, ref, _ := strings.Cut(job, "|")
	s, err := Open(dir, Options{})
	if err == nil {
		var img *Image
		if img, err = s.Get(context.Background(), ref); err == nil {
			fmt.Print(img.ID)
			err = img.Close()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// large is an image whose unpacking takes a while.
func large(t testing.TB) built {
	t.Helper()
	var layers [][]byte
	for l := range 4 {
		entries := []entry{dir(fmt.Sprint(l))}
		for n := range 60 {
			entries = append(entries, file(fmt.Sprintf("%d/%d", l, n), strings.Repeat(fmt.Sprint(l, n), 200)))
		}
		layers = append(layers, layerOf(t, entries...))
	}
	return build(t, layers...)
}

func TestGet_concurrent(t *testing.T) {
	noEngine(t)
	var blobs, manifests atomic.Int32
	host := serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		switch {
		case strings.Contains(r.URL.Path, "/blobs/"):
			blobs.Add(1)
		case strings.Contains(r.URL.Path, "/manifests/"):
			manifests.Add(1)
		}
		next.ServeHTTP(w, r)
	})
	b := sample(t)
	push(t, host+"/x", b.image(t))
	dir := newStore(t).dir
	var stores []*Store // as those of several processes
	for range 3 {
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		stores = append(stores, s)
	}
	var wg sync.WaitGroup
	for n := range 30 {
		s := stores[n%3]
		wg.Go(func() {
			img, err := s.Get(t.Context(), host+"/x")
			if err != nil {
				t.Error(err)
				return
			}
			if img.ID != b.id() {
				t.Error(img.ID)
			}
			img.Close()
		})
	}
	wg.Wait()
	if blobs.Load() != 3 || manifests.Load() != 1 { // two layers and a config
		t.Errorf("%d blobs and %d manifests fetched", blobs.Load(), manifests.Load())
	}
}

// Images that share layers, and whose layers are stored differently.
func TestGet_sharedLayers(t *testing.T) {
	s := newStore(t)
	common := layerOf(t, file("f", "x"))
	a := build(t, common, layerOf(t, file("a", "x")), common)
	b := build(t, common, layerOf(t, file("b", "x")))
	b.layers = [][]byte{gzipped(t, b.layers[0]), gzipped(t, b.layers[1])}
	one, two := get(t, s, a.save(t)), get(t, s, b.save(t))
	if len(one.Layers) != 2 || len(two.Layers) != 2 || one.Layers[1] != two.Layers[0] {
		t.Error(one.Layers, two.Layers)
	}
}

func TestGet_killed(t *testing.T) {
	b := large(t)
	ref := b.save(t)
	whole := newStore(t)
	want := map[string]map[string]string{}
	for _, layer := range get(t, whole, ref).Layers {
		want[filepath.Base(layer)] = treeOf(t, layer)
	}
	start := time.Now()
	get(t, newStore(t), ref)
	took := time.Since(start) + 30*time.Millisecond // and the start of a process
	for range tier.Pick(t, 5, 10, 200) {
		s := newStore(t)
		var wg sync.WaitGroup
		for n := range 4 {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), helperVariable+"="+s.dir+"|"+ref)
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			victim := n > 0
			if victim {
				timer := time.AfterFunc(rand.N(3*took), func() { _ = cmd.Process.Kill() })
				defer timer.Stop()
			}
			wg.Go(func() {
				err := cmd.Wait()
				if err == nil && out.String() != b.id() || err != nil && !victim {
					t.Errorf("%v: %s", err, out.String())
				}
				// Whoever was killed, what has its name is complete.
				entries, err := os.ReadDir(s.path(layersDir, ""))
				if err != nil {
					t.Error(err)
				}
				for _, e := range entries {
					sameTrees(t, treeOf(t, s.path(layersDir, e.Name())), want[e.Name()])
				}
			})
		}
		wg.Wait()
		get(t, s, ref).Close()
		if _, err := s.Cleanup(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		checkEmpty(t, s)
	}
}

// checkEmpty checks that a store has nothing left.
func checkEmpty(t testing.TB, s *Store) {
	t.Helper()
	left(t, s, layersDir, imagesDir, refsDir, keptDir, unfinished)
}

// Killed alone, a process leaves its unfinished layer. The next one or Cleanup removes it.
func TestGet_killedAlone(t *testing.T) {
	noEngine(t)
	b := sample(t)
	reached := make(chan bool, 10)
	host := serve(t, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.Contains(r.URL.Path, "/blobs/") && !strings.HasSuffix(r.URL.Path, b.id()) && r.Header.Get("Helper") == "" {
			select {
			case reached <- true:
				<-r.Context().Done() // the client has been killed
				return
			default:
			}
		}
		next.ServeHTTP(w, r)
	})
	push(t, host+"/x", b.image(t))
	for range cap(reached) - 2 { // both layers of the first process hang, no later ones
		reached <- true
	}
	s := newStore(t)
	ctx, kill := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), helperVariable+"="+s.dir+"|"+host+"/x")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range cap(reached) {
		<-reached
	}
	for range cap(reached) {
		reached <- true
	}
	plan, err := s.Cleanup(t.Context(), false)
	if err != nil || len(plan) > 0 {
		t.Errorf("removed %v of a living process, %v", plan, err)
	}
	kill()
	_ = cmd.Wait()
	plan, err = s.Cleanup(t.Context(), true)
	var kinds []Kind
	for _, r := range plan {
		kinds = append(kinds, r.Kind)
	}
	if got := fmt.Sprint(kinds); err != nil || got != "[image unfinished unfinished]" {
		t.Errorf("%s, %v", got, err)
	}
	checkSample(t, get(t, s, host+"/x"), b)
	left(t, s, unfinished)
}

func TestCleanup(t *testing.T) {
	s := newStore(t)
	common := layerOf(t, file("f", "content"))
	a, b := build(t, common, layerOf(t, file("a", "a"))), build(t, common, layerOf(t, file("b", "b")))
	one := get(t, s, a.save(t))
	two := get(t, s, b.save(t))
	clean := func(dryRun bool, want ...string) {
		t.Helper()
		removed, err := s.Cleanup(t.Context(), dryRun)
		var got []string
		for _, r := range removed {
			got = append(got, fmt.Sprint(r.Kind, " ", r.Size))
			if !strings.HasPrefix(r.ID, "sha256:") {
				t.Error(r.ID)
			}
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("removed %v, want %v: %v", got, want, err)
		}
	}
	clean(false)
	folder := filepath.Join(t.TempDir(), "folder")
	if err := errors.Join(os.Mkdir(folder, 0o700), two.Keep(t.Context(), folder)); err != nil {
		t.Fatal(err)
	}
	two.Close()
	two.Close()
	clean(false)
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	clean(true, "image 0", "layer 1")
	if _, err := os.Stat(two.Layers[1]); err != nil {
		t.Error(err)
	}
	clean(false, "image 0", "layer 1")
	if _, err := os.Stat(two.Layers[1]); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := s.Find(t.Context(), b.id()); !errors.Is(err, ErrMissing) {
		t.Error(err)
	}
	if _, err := os.Stat(one.Layers[0]); err != nil {
		t.Error(err)
	}
	one.Close()
	removed, err := s.Cleanup(t.Context(), false)
	if err != nil || len(removed) != 3 {
		t.Error(removed, err)
	}
	checkEmpty(t, s)
}

func TestCleanup_refs(t *testing.T) {
	noEngine(t)
	s := newStore(t)
	host := serve(t, nil)
	b := sample(t)
	for _, name := range []string{"/b", "/a"} {
		push(t, host+name, b.image(t))
		get(t, s, host+name).Close()
	}
	removed, err := s.Cleanup(t.Context(), false)
	if err != nil || len(removed) != 3 || fmt.Sprint(removed[0].Refs) != fmt.Sprintf("[%s/a:latest %s/b:latest]", host, host) {
		t.Error(removed, err)
	}
	checkEmpty(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	get(t, s, b.save(t)).Close()
	if _, err := s.Cleanup(ctx, false); !errors.Is(err, fumehood.ErrCanceled) {
		t.Error(err)
	}
}

// A file that a killed process left is removed. One that is being written is not.
func TestCleanup_file(t *testing.T) {
	s := newStore(t)
	release, err := s.lock(t.Context(), storeLock, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path(unfinished, "file-1"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if removed, err := s.Cleanup(ctx, false); !errors.Is(err, fumehood.ErrCanceled) || len(removed) > 0 {
		t.Error(removed, err)
	}
	release()
	removed, err := s.Cleanup(t.Context(), false)
	if err != nil || len(removed) != 1 || removed[0].Kind != KindUnfinished || removed[0].Size != 3 {
		t.Error(removed, err)
	}
	checkEmpty(t, s)
}

// The folder of a living process stays, that of a killed one is removed.
func TestStore_Folder(t *testing.T) {
	s := newStore(t)
	dir, release, err := s.Folder(t.Context(), "build-1")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(s.path(unfinished, "build-2"), 0o700), os.WriteFile(filepath.Join(dir, "f"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	image := get(t, s, build(t, layerOf(t)).save(t))
	image.Close()
	removed, err := s.Sweep(t.Context())
	if err != nil || len(removed) != 1 || removed[0].ID != "build-2" {
		t.Error(removed, err)
	}
	get(t, s, image.ID).Close() // a sweep removes no images
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := s.Folder(ctx, "build-1"); !errors.Is(err, fumehood.ErrCanceled) {
		t.Error(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if _, err := s.Cleanup(t.Context(), false); err != nil {
		t.Error(err)
	}
	checkEmpty(t, s)
}

// An image that Get has returned stays complete, whatever cleanups run.
func TestCleanup_concurrentGet(t *testing.T) {
	noEngine(t)
	s := newStore(t)
	a := sample(t)
	b := build(t, a.layers[0], layerOf(t, file("b", "x")))
	host := serve(t, nil)
	push(t, host+"/a", a.image(t))
	until := time.Now().Add(tier.Pick(t, 2*time.Second, 5*time.Second, 20*time.Second))
	var wg sync.WaitGroup
	var gets, cleanups atomic.Int32
	for _, ref := range []string{host + "/a", b.save(t)} {
		wg.Go(func() {
			for time.Now().Before(until) {
				img, err := s.Get(t.Context(), ref)
				if err != nil {
					t.Error(err)
					return
				}
				gets.Add(1)
				if found, err := s.Find(t.Context(), img.ID); err != nil {
					t.Error(err)
				} else {
					found.Close()
				}
				for _, file := range []string{"0/bin/su", "0/opaque/old", "1/b", "1/opaque/new"} {
					if _, err := os.Stat(img.Layers[file[0]-'0'] + file[1:]); err != nil && (file[0] == '0' || img.ID == b.id() == (file == "1/b")) {
						t.Error(err)
					}
				}
				img.Close()
			}
		})
	}
	wg.Go(func() {
		for time.Now().Before(until) {
			removed, err := s.Cleanup(t.Context(), false)
			if err != nil {
				t.Error(err)
			}
			if len(removed) > 0 {
				cleanups.Add(1)
			}
		}
	})
	wg.Wait()
	if gets.Load() < 10 || cleanups.Load() < 5 {
		t.Errorf("%d gets and %d cleanups", gets.Load(), cleanups.Load())
	}
	if _, err := s.Cleanup(t.Context(), false); err != nil {
		t.Error(err)
	}
	checkEmpty(t, s)
}

// All that have an image open use one descriptor for its lock, and the last one releases it.
func TestImage_oneLock(t *testing.T) {
	s := newStore(t)
	ref := sample(t).save(t)
	images := []*Image{get(t, s, ref)}
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	before := open()
	for range 5 {
		images = append(images, get(t, s, ref))
	}
	if n := open() - before; n != 0 {
		t.Errorf("five more users of an image take %d descriptors", n)
	}
	other, err := Open(s.dir, Options{}) // as another process would
	if err != nil {
		t.Fatal(err)
	}
	for n, img := range images {
		if removed, err := other.Cleanup(t.Context(), false); err != nil || len(removed) > 0 {
			t.Fatalf("%d of %d users have closed the image: removed %v, %v", n, len(images), removed, err)
		}
		if err := img.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := other.Cleanup(t.Context(), false); err != nil || len(removed) == 0 {
		t.Errorf("removed %v, %v", removed, err)
	}
	checkEmpty(t, s)
}
