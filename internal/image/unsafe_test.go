package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParse_caches(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"none":         {"FROM a\nRUN --mount=type=bind,target=/x --mount=target=/y,type=secret true\n", false},
		"an id":        {"FROM a\nRUN --mount=type=cache,id=x,target=/x true\n", true},
		"no id":        {"FROM a\nRUN --mount=target=/x,TYPE=Cache true\n", true},
		"over lines":   {"FROM a\nRUN \\\n  --mount=type=secret,id=s \\\n  --mount=target=/x,type=cache \\\n  true\n", true},
		"a heredoc":    {"FROM a\nRUN --mount=type=cache,target=/x <<E\ntrue\nE\n", true},
		"in a heredoc": {"FROM a\nRUN <<E\nRUN --mount=type=cache,target=/x true\nE\n", false},
		"a variable":   {"FROM a\nARG T=cache\nRUN --mount=type=$T,target=/x true\n", true},
		"quoted":       {"FROM a\nRUN --mount=\"type=cache\",target=/x true\n", true},
		"an argument":  {"FROM a\nRUN echo --mount=type=cache\n", false},
		"escape":       {"# escape=`\nFROM a\nRUN `\n --mount=type=cache,target=/x true\n", true},
	} {
		d, err := Parse(c.text, nil)
		if err != nil || d.Caches != c.want {
			t.Errorf("%s: got %t, %v", name, d.Caches, err)
		}
	}
}

func TestDockerfile_Check(t *testing.T) {
	for syntax, ok := range map[string]bool{
		"": true, "docker/dockerfile:1": true, "docker/dockerfile": true, "docker.io/docker/dockerfile:1.2": true, "docker/dockerfile:1.14.1-labs": true,
		"docker/dockerfile:labs": true, "docker/dockerfile:1.0": false, "docker/dockerfile:1.1.7-experimental": false, "evil/dockerfile:1": false,
		"registry.example/docker/dockerfile:1": false, "docker/dockerfile:1@sha256:" + strings.Repeat("a", 64): false, "docker/dockerfile:1.20x": false,
	} {
		text := "FROM a\n"
		if syntax != "" {
			text = "# syntax=" + syntax + "\n" + text
		}
		d, err := Parse(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Check(map[string]string{"A": "b"}); (err == nil) != ok || err != nil && !strings.HasPrefix(err.Error(), "line 1: syntax="+syntax+" ") {
			t.Errorf("%q: got %v", syntax, err)
		}
	}
	for _, text := range []string{"#!/bin/x\n# syntax=evil\nFROM a\n", "// syntax=evil\nFROM a\n"} {
		d, err := Parse(text, nil)
		if err == nil && d.Check(nil) == nil {
			t.Errorf("%q passes", text)
		}
	}
	for syntax, ok := range map[string]bool{
		"": true, "docker/dockerfile:1": true, "docker/dockerfile:1.4": true, "docker/dockerfile:1.14.1-labs": true, "docker/dockerfile:labs": true,
		"docker/dockerfile:1.2": false, "docker/dockerfile:1.3.1": false, "docker.io/docker/dockerfile:1.3-labs": false,
	} {
		text := "FROM a\nRUN cat <<\"#\" >/x || true\nADD http://127.0.0.1/ /y\n#\n"
		if syntax != "" {
			text = "# syntax=" + syntax + "\n" + text
		}
		d, err := Parse(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Check(nil); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "line 3: a heredoc is not safe with syntax="+syntax) {
			t.Errorf("a heredoc for %q: got %v", syntax, err)
		}
	}
	for _, arg := range ReservedArgs {
		if err := (Dockerfile{}).Check(map[string]string{arg: ""}); err == nil || !strings.Contains(err.Error(), arg) {
			t.Errorf("%s: got %v", arg, err)
		}
	}
}

// Versions of the builders read directives in different ways: a directive for one is a comment for another.
func TestParse_directives(t *testing.T) {
	const from = "\nFROM a\n"
	for text, ok := range map[string]bool{
		"FROM a\n":                            true,
		"# syntax=docker/dockerfile:1" + from: true,
		"# syntax = docker/dockerfile:1\r\n#escape=`\r\n# check=skip=all\r" + from: true,
		"# A comment.\n# syntax=a" + from:                                          true, // a comment for all of them
		"\n# syntax=a" + from:                                                      true,
		"#!/usr/bin/env x\n# A comment." + from:                                    true,
		"# VERSION=1\n# A comment: syntax=a" + from:                                true,
		"# VERSION=1\n\n# syntax=a" + from:                                         true,
		"#!/usr/bin/env x\n# syntax=docker/dockerfile:1" + from:                    false,
		"# check=skip=all\n# escape=`" + from:                                      false,
		"# check=skip=all\n# syntax=a" + from:                                      false,
		"# foo=bar\n# syntax=evil.example/x:1" + from:                              false,
		"# foo=bar\n#!x\n# foo=bar\n# escape=`" + from:                             false,
		"# foo=" + strings.Repeat("x", 1<<17) + "\n# syntax=evil" + from:           false,
		"\ufeff# syntax=docker/dockerfile:1" + from:                                false,
		" # escape=`" + from:                                                       false,
		"#\u00a0escape=`" + from:                                                   false,
		"#\vescape=`" + from:                                                       false,
		"# Escape=`" + from:                                                        false,
		"# syntax=docker/dockerfile:1\n# SYNTAX=evil" + from:                       false,
		"# syntax=docker/dockerfile:1\n# syntax=docker/dockerfile:1" + from:        false,
		"// syntax=docker/dockerfile:1" + from:                                     false,
		"# syntax=docker/dockerfile:1\n// escape=`" + from:                         false,
	} {
		if _, err := Parse(text, nil); (err == nil) != ok {
			t.Errorf("%.60q: got %v", text, err)
		}
	}
}

func TestCheckTriggers(t *testing.T) {
	for trigger, ok := range map[string]bool{
		"RUN true":   true,
		"COPY a /b ": true,
		"# escape=`\nADD `\nhttp://127.0.0.1/ /x":  false,
		"RUN true\nADD http://127.0.0.1/ /x":       false,
		"RUN true\nRUN true":                       false,
		"RUN cat <<E\nADD http://127.0.0.1/ /x\nE": false,

		"# a comment": false,
		"":            false,
	} {
		if err := CheckTriggers("im", []string{trigger}); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "the image im ") {
			t.Errorf("%q: got %v", trigger, err)
		}
	}
}

func TestDockerfile_Check_fetched(t *testing.T) {
	for line, ok := range map[string]bool{
		"ADD a b /x/":                                 true,
		"ADD --chown=1:1 a:b /x":                      false, // a builder may take it for host:path
		"ADD . /x:y":                                  true,
		"ADD node_modules/@types /x":                  true,
		"ADD ./$V /x":                                 true,
		"ADD src/${V} /x":                             true,
		"ADD /$V /x":                                  true,
		"ADD <<E /x\nhttp://a\nE":                     true,
		"COPY http://a /x":                            true, // COPY has paths only
		"RUN echo ADD http://a /x":                    true,
		"ADD http://127.0.0.1:1/ /x":                  false,
		"add HTTPS://a /x":                            false,
		"ADD a http://a b /x/":                        false,
		"ADD [\"a\", \"http://a\", \"/x/\"]":          false,
		"ADD --keep-git-dir=true git@host:a/b.git /x": false,
		"ADD git://a/b /x":                            false,
		"ADD ssh://git@a/b /x":                        false,
		"ADD github.com/a/b /x":                       false,
		"ADD g\"ithub\".com/a/b /x":                   false,
		"ADD git\\hub.com/a/b /x":                     false,
		"ADD $V /x":                                   false,
		"ADD ${V} /x":                                 false,
		"ADD ht$V /x":                                 false,
		"ADD github.com/$V /x":                        false,
		"ADD \\\n  http://a \\\n /x":                  false,
		"ONBUILD ADD http://a /x":                     false,
		"onbuild add $V /x":                           false,
		"ONBUILD ADD a /x":                            true,
	} {
		d, err := Parse("FROM a\n"+line+"\n", nil)
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if err := d.Check(nil); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "line 2: ADD ") {
			t.Errorf("%q: got %v", line, err)
		}
		trigger, is := strings.CutPrefix(line, "ADD ")
		if !is || strings.Contains(line, "\n") {
			continue
		}
		if err := CheckTriggers("im", []string{"RUN true", "ADD " + trigger}); (err == nil) != ok {
			t.Errorf("as a trigger, %q: got %v", line, err)
		}
	}
	d, err := Parse("# escape=`\nFROM a\nADD git`hub.com/a/b /x\n", nil)
	if err != nil || d.Check(nil) == nil {
		t.Errorf("with another escape: got %v", err)
	}
}

func TestScope(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if Scope(dir, dir) != Scope(link, dir) {
		t.Error("a folder has two scopes")
	}
	seen := map[string]bool{}
	for _, pair := range [][2]string{{dir, dir}, {"/a", dir}, {dir, "/a"}, {"", dir}, {dir, ""}, {"/a", "/b"}, {"/a/b", ""}, {"/b", "/a"}} {
		seen[Scope(pair[0], pair[1])] = true
	}
	if len(seen) != 8 {
		t.Errorf("%d scopes", len(seen))
	}
}
