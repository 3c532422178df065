package main

import (
	"bytes"
	"os"
	"testing"
)

func TestText_Committed(t *testing.T) {
	want, err := text()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../../native/filter/syscalls.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("syscalls.txt is not what go.mod's version of golang.org/x/sys makes: go generate ./internal/native/filter")
	}
}
