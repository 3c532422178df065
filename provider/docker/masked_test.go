package docker

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/box"
)

// Values of this process's variables are in no step of a build and in no error, whichever builder it uses.
func TestBuild_hostEnv(t *testing.T) {
	// A value that is cut, or whose blanks are joined, would not be recognized.
	secret := strings.Repeat("long", 30) + "  a value that is no secret"
	t.Setenv("FUMEHOOD_TEST_MASKED", secret)
	for name, classic := range map[string]bool{"BuildKit": false, "the Engine's own": true} {
		t.Run(name, func(t *testing.T) {
			b := newBuilder(t, Options{ClassicBuilder: classic})
			build := "{dockerfile_inline: \"FROM " + testBase + "\\nRUN echo '$FUMEHOOD_TEST_MASKED' && exit 3\\n\", labels: {fumehood-test: " + b.mark + "}}"
			_, err := b.Start(t.Context(), fumehood.Spec{Compose: &fumehood.Compose{
				Content: "services: {default: {command: sleep infinity, build: " + build + "}}", HostEnv: []string{"FUMEHOOD_TEST_MASKED"},
			}})
			if !errors.Is(err, fumehood.ErrConfig) || strings.Contains(err.Error(), secret) || strings.Count(err.Error(), "${FUMEHOOD_TEST_MASKED}") < 2 {
				t.Errorf("got %v", err)
			}
			for e := err; e != nil; e = errors.Unwrap(e) {
				if strings.Contains(e.Error(), secret) {
					t.Errorf("it wraps %v", e)
				}
			}
			if b.ran("echo '${FUMEHOOD_TEST_MASKED}'") == 0 || b.ran(secret) != 0 {
				t.Errorf("the steps are %q", b.steps)
			}
		})
	}
}

func TestMasked(t *testing.T) {
	t.Setenv("FUMEHOOD_TEST_MASKED", "the-value")
	project := &fumehood.Compose{HostEnv: []string{"FUMEHOOD_TEST_MASKED"}}
	inner := fmt.Errorf("pull the-value: %w", fs.ErrNotExist)
	err := box.MaskError(project, &fumehood.Error{Op: "start", Err: &fumehood.Error{Op: "pull the-value", Path: "/the-value", Class: fumehood.ErrConfig, Err: inner, Hint: "use the-value"}})
	if text := err.Error(); strings.Contains(text, "the-value") || !errors.Is(err, fumehood.ErrConfig) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := box.MaskError(project, fs.ErrExist); err != fs.ErrExist { //nolint:errorlint // it is the same
		t.Errorf("got %v", err)
	}
	if err := box.MaskError(nil, inner); err != inner { //nolint:errorlint // it is the same
		t.Errorf("got %v", err)
	}
}
