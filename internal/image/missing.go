package image

import (
	"errors"
	"slices"
	"strings"

	"github.com/fumehood/fumehood"
)

// missingImage describes an image that some services need, for missingError.
func missingImage(ref string, services []string) string {
	return ref + " (" + strings.Join(slices.Compact(slices.Sorted(slices.Values(services))), ", ") + ")"
}

// missingError returns the error for images that are missing and may not be fetched or built; nil if there are none.
func missingError(images []string, hint string) error {
	if len(images) == 0 {
		return nil
	}
	all := strings.Join(slices.Sorted(slices.Values(images)), "; ")
	return &fumehood.Error{Op: "find images", Class: fumehood.ErrConfig, Err: errors.New("missing: " + all), Hint: hint}
}

// NotPrepared returns the error of a service without an image among those that were prepared for its project.
func NotPrepared(service string) error {
	return &fumehood.Error{
		Op: "find image", Service: service, Class: fumehood.ErrConfig, Err: errors.New("no image was prepared for this service"),
		Hint: "do not change the project while its sandboxes start",
	}
}
