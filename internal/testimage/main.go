// Command testimage makes the images that the tests run in, once, under fixed local names:
//
//	fumehood-test/python    Debian with python3, procps and bash, and the user tester (1000:1000)
//	fumehood-test/busybox   busybox with all its applets, and the user tester (1000:1000)
//	fumehood-test/static    one static program at /static and nothing else
//	fumehood-test/examples  as python, with tcc (a C compiler), Redis, patch and pytest: what the tasks in examples need
//
// Where a registry answers within a few seconds they are built on the official images, but for static, else
// they are made from Debian's packages. An image that is there already is left as it is.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

const (
	// cacheLabel marks what may stay on a daemon after the tests.
	cacheLabel = "fumehood.cache=test-image"
	// recipeLabel holds the recipe that an image was made by. Raise recipe when the images should change.
	recipeLabel = "fumehood.test-image"
	recipe      = "3"

	searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

	// registryWait is how long a registry may take to say that it has an image.
	registryWait = 5 * time.Second
)

func main() {
	force := flag.Bool("force", false, "make the images again even if they are there")
	offline := flag.Bool("offline", false, "do not ask a registry")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: testimage [-force] [-offline] [image ...]")
		flag.PrintDefaults()
	}
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *force, *offline, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testimage:", err)
		os.Exit(1)
	}
}

// run makes the named images, or all of them if none is named.
func run(ctx context.Context, force, offline bool, names []string) error {
	todo, err := choose(names)
	if err != nil {
		return err
	}
	e, err := connect()
	if err != nil {
		return err
	}
	defer e.close()
	if !force {
		if todo, err = missing(ctx, e, todo); err != nil || len(todo) == 0 {
			return err
		}
	}

	// The name begins with a dot so that the leftover check does not take the lock for a leftover.
	unlock, err := lock(ctx, filepath.Join(os.TempDir(), ".fumehood-testimage-"+strconv.Itoa(os.Getuid())+".lock"))
	if err != nil {
		return fmt.Errorf("wait for another testimage to end: %w", err)
	}
	defer unlock()
	if !force { // another process may have made some while this one waited
		if todo, err = missing(ctx, e, todo); err != nil {
			return err
		}
	}
	for _, im := range todo {
		if err := makeOne(ctx, e, im, offline); err != nil {
			return fmt.Errorf("make the image %s: %w", im.name, err)
		}
	}
	return nil
}

func choose(names []string) ([]testImage, error) {
	if len(names) == 0 {
		return images, nil
	}
	var todo []testImage
	for _, name := range names {
		found := false
		for _, im := range images {
			if im.name == name {
				todo, found = append(todo, im), true
			}
		}
		if !found {
			return nil, fmt.Errorf("there is no test image %q: see the names in internal/testimage/main.go", name)
		}
	}
	return todo, nil
}

// missing returns those images which are not there as this recipe makes them.
func missing(ctx context.Context, e engine, all []testImage) ([]testImage, error) {
	var todo []testImage
	for _, im := range all {
		_, labels, err := e.inspect(ctx, im.name)
		if err != nil && !errors.Is(err, errNoImage) {
			return nil, fmt.Errorf("%w: is a Docker Engine running? scripts/ensure-docker starts one", err)
		}
		if labels[recipeLabel] != recipe {
			todo = append(todo, im)
		}
	}
	return todo, nil
}

// makeOne makes one image, from a registry if it has a base there and the registry answers.
func makeOne(ctx context.Context, e engine, im testImage, offline bool) error {
	start := time.Now()
	arch, err := e.arch(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "fumehood-testimage-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	old, _, err := e.inspect(ctx, im.name)
	if err != nil && !errors.Is(err, errNoImage) {
		return err
	}
	if im.base != "" && !offline && reachable(ctx, e, im.base) {
		say("%s: building on %s", im.name, im.base)
		err = e.build(ctx, im.name, im.dockerfile())
	} else {
		say("%s: %s", im.name, im.how)
		err = im.tree(ctx, dir, arch, func(ctx context.Context, t tree) error {
			return e.load(ctx, im.name, t, im.changes())
		})
	}
	if err != nil {
		return err
	}
	if old != "" {
		e.discard(ctx, old)
	}
	say("%s: ready after %s", im.name, time.Since(start).Round(100*time.Millisecond))
	return nil
}

// reachable reports whether the engine has the image or a registry offers it.
func reachable(ctx context.Context, e engine, ref string) bool {
	if _, _, err := e.inspect(ctx, ref); err == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, registryWait)
	defer cancel()
	return e.offered(ctx, ref) == nil
}

func say(format string, a ...any) { fmt.Fprintf(os.Stderr, "testimage: "+format+"\n", a...) }
