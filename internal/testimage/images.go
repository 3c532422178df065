package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// tree is the content of an image as a tar stream.
type tree = io.Reader

// testImage is one image and the two ways to make it.
type testImage struct {
	name string
	cmd  []string
	env  []string

	base  string // what a registry has; empty if there is nothing to build on
	setup string // one shell command that turns base into the image

	// tree makes the content for the engine's architecture below the folder dir and hands it to load.
	tree func(ctx context.Context, dir, arch string, load func(context.Context, tree) error) error
	how  string // what tree does, for the progress line
}

// The cheap ones come first: who waits for one of them does not wait for Debian.
var images = []testImage{
	{
		name: "fumehood-test/static",
		cmd:  []string{"/static"},
		tree: staticTree,
		how:  "building one static program",
	},
	{
		name:  "fumehood-test/busybox",
		cmd:   []string{"sh"},
		env:   []string{searchPath},
		base:  "busybox:stable-musl",
		setup: addTester("/bin/sh"),
		tree:  busyboxTree,
		how:   "no registry reached, using Debian's busybox-static",
	},
	{
		name: "fumehood-test/python",
		cmd:  []string{"bash"},
		env:  []string{searchPath},
		base: "python:3.12-slim",
		setup: "if ! command -v ps >/dev/null; then apt-get update" +
			" && apt-get install -y --no-install-recommends procps && rm -rf /var/lib/apt/lists/*; fi" +
			" && " + addTester("/bin/bash"),
		tree: debianTree("python3", "procps", "bash"),
		how:  "no registry reached, using mmdebstrap (about half a minute)",
	},
	{
		name: "fumehood-test/examples",
		cmd:  []string{"bash"},
		env:  []string{searchPath},
		base: "debian:stable-slim",
		setup: "apt-get update && apt-get install -y --no-install-recommends " + strings.Join(exampleTools, " ") +
			" && rm -rf /var/lib/apt/lists/* && " + addTester("/bin/bash"),
		tree: debianTree(exampleTools...),
		how:  "no registry reached, using mmdebstrap (about half a minute)",
	},
}

// exampleTools are the packages that the tasks in examples need besides the least: a C compiler, a database, and what
// a repository is mended and tested with.
var exampleTools = []string{"python3", "procps", "bash", "tcc", "libc6-dev", "redis-server", "patch", "python3-pytest"}

// addTester is a shell command that adds the user tester, in images with or without useradd.
func addTester(shell string) string {
	return fmt.Sprintf("echo '%s' >>/etc/passwd && echo '%s' >>/etc/group && mkdir -p /home/tester && chown %d:%[3]d /home/tester",
		strings.TrimSpace(testerPasswd(shell)), strings.TrimSpace(testerGroup), testerID)
}

// changes are the Dockerfile instructions that give the image its configuration.
func (im testImage) changes() []string {
	lines := []string{"LABEL " + cacheLabel, "LABEL " + recipeLabel + "=" + recipe}
	for _, e := range im.env {
		lines = append(lines, "ENV "+e)
	}
	cmd, err := json.Marshal(im.cmd)
	if err != nil {
		panic(err) // a list of strings always encodes
	}
	return append(lines, "CMD "+string(cmd))
}

// dockerfile builds the image on its base.
func (im testImage) dockerfile() string {
	return fmt.Sprintf("FROM %s\nRUN %s\n%s\n", im.base, im.setup, strings.Join(im.changes(), "\n"))
}
