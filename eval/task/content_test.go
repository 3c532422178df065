package task

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/test/filetest"
)

func TestContent_Open(t *testing.T) {
	dir := filetest.Lay(t, map[string]string{"file": "of a file", "empty": "", "link": "-> file", "folder/x": ""})
	for name, c := range map[string]struct {
		content Content
		want    string
		fails   string
	}{
		"nothing":                        {Content{}, "", ""},
		"text":                           {Content{Text: "data:,x"}, "data:,x", ""},
		"a file":                         {Content{Path: filepath.Join(dir, "file")}, "of a file", ""},
		"a link":                         {Content{Path: filepath.Join(dir, "link")}, "of a file", ""},
		"an empty file":                  {Content{Path: filepath.Join(dir, "empty")}, "", ""},
		"a folder":                       {Content{Path: dir}, "", "not a regular file"},
		"a missing file":                 {Content{Path: filepath.Join(dir, "none")}, "", "no such file"},
		"two forms":                      {Content{Text: "a", Path: "b"}, "", "more than one"},
		"data in base64":                 {Content{Data: "data:application/octet-stream;base64,AP8K"}, "\x00\xff\n", ""},
		"base64 without padding":         {Content{Data: "data:;base64,aGk"}, "hi", ""},
		"base64 whose padding is quoted": {Content{Data: "DATA:text/plain;BASE64,aGk%3D"}, "hi", ""},
		"data with quoted bytes":         {Content{Data: "data:,a%20b%2Cc,d"}, "a b,c,d", ""},
		"a type with a charset":          {Content{Data: "data:text/plain;charset=utf-8,a+b"}, "a+b", ""},
		"no data":                        {Content{Data: "data:,"}, "", ""},
		"data without a comma":           {Content{Data: "data:text/plain"}, "", "of the form"},
		"another scheme":                 {Content{Data: "http://x,y"}, "", "of the form"},
		"broken base64":                  {Content{Data: "data:;base64,se cret"}, "", "base64"},
		"broken quoting":                 {Content{Data: "data:,secret%zz"}, "", "hexadecimal"},
	} {
		r, size, err := c.content.Open()
		if err != nil || c.fails != "" {
			if c.fails == "" || err == nil || !strings.Contains(err.Error(), c.fails) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != c.want || size != int64(len(c.want)) {
			t.Errorf("%s: %v, %q of %d", name, err, got, size)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestContentOf(t *testing.T) {
	dir := filetest.Lay(t, map[string]string{"file": "", "folder/x": ""})
	abs := filepath.Join(dir, "file")
	for value, want := range map[string]Content{
		"":             {},
		"data:,x":      {Data: "data:,x"},
		"Data:broken":  {Data: "Data:broken"},
		"file":         {Path: abs},
		"./file":       {Path: abs},
		abs:            {Path: abs},
		"folder":       {Text: "folder"},
		"missing":      {Text: "missing"},
		"file\n":       {Text: "file\n"},
		"print('hi')":  {Text: "print('hi')"},
		"da\x00ta:,\n": {Text: "da\x00ta:,\n"},
	} {
		if got := ContentOf(value, dir); got != want {
			t.Errorf("%q is %+v, want %+v", value, got, want)
		}
	}
	if err := os.Remove(abs); err != nil {
		t.Fatal(err)
	}
	if got := ContentOf("file", dir); got != (Content{Text: "file"}) {
		t.Errorf("got %+v", got)
	}
}

func TestTarget(t *testing.T) {
	for key, want := range map[string][2]string{
		"a":           {"", "a"},
		"/etc/a:b":    {"", "/etc/a:b"},
		"./a:b":       {"", "./a:b"},
		"db:/init":    {"db", "/init"},
		"db:a/b:c":    {"db", "a/b:c"},
		"default:x:y": {"default", "x:y"},
	} {
		if service, path, err := target(key); err != nil || service != want[0] || path != want[1] {
			t.Errorf("%q: %q, %q, %v", key, service, path, err)
		}
	}
	for _, key := range []string{"", "db:", ":x", "a/", "db:a/", "a\x00"} {
		if _, _, err := target(key); err == nil {
			t.Errorf("%q is accepted", key)
		}
	}
}

func TestInterpreter(t *testing.T) {
	for script, want := range map[string]string{
		"":                                "sh",
		"echo hi":                         "sh",
		"# comment\n#!/bin/bash":          "sh",
		"#!":                              "sh",
		"#!/bin/bash\necho":               "/bin/bash",
		"#! /bin/bash -e\necho":           "/bin/bash|-e",
		"#!/usr/bin/env -S python3 -u\nx": "/usr/bin/env|-S python3 -u",
		"#!/bin/sh\r\n":                   "/bin/sh",
	} {
		if got := strings.Join(interpreter(script), "|"); got != want {
			t.Errorf("%q: %q, want %q", script, got, want)
		}
	}
}

func TestSlug(t *testing.T) {
	for name, want := range map[string]string{
		"sums": "sums", "My Task! (2)": "my-task-2", "": "task", "日本": "task", "-a-": "a", "a--b__c": "a-b-c",
		strings.Repeat("x", 100):       strings.Repeat("x", 40),
		strings.Repeat("x", 39) + "-y": strings.Repeat("x", 39),
	} {
		if got := slug(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
