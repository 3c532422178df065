package image

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	// ScopeArg is the build argument that sets a namespace for the ids of cache mounts. BuildKit applies it whatever
	// the id is made of in the Dockerfile: id, target, variables. Builders support it since Engine 20.10 and
	// docker/dockerfile:1.2.
	ScopeArg = "BUILDKIT_CACHE_MOUNT_NS"
	// syntaxArg is the build argument that selects the builder, as "# syntax=" does.
	syntaxArg = "BUILDKIT_SYNTAX"
)

// ReservedArgs are the arguments with which a build could use caches of others.
var ReservedArgs = []string{ScopeArg, syntaxArg}

// ForeignCache is the reason why a Dockerfile or a project may not choose a builder, or the namespace of its caches.
const ForeignCache = "with it a build could read and change the caches of others"

// Scope returns the cache namespace of a build. Builds of the same folder by the same project have the same scope,
// and share what RUN --mount=type=cache keeps. Folders are compared by their real paths. No scope is a prefix of
// another.
func Scope(project, context string) string {
	h := sha256.New()
	for _, dir := range []string{project, context} {
		if real, err := filepath.EvalSymlinks(dir); err == nil && dir != "" {
			dir = real
		}
		_, _ = fmt.Fprintf(h, "%d:%s", len(dir), dir) // a hash accepts all data
	}
	return "fumehood-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// scoped matches the builders that respect a scope: Docker's own, in versions that support it. A digest does not
// match, because it may be of an older version.
var scoped = regexp.MustCompile(`^(docker\.io/)?docker/dockerfile(:(latest|labs|1(\.([2-9]|[1-9][0-9]+)(\.[0-9]+)?)?(-labs)?))?$`)

// knowsHeredocs matches the scoped builders that support heredocs.
var knowsHeredocs = regexp.MustCompile(`^(docker\.io/)?docker/dockerfile(:(latest|labs|1(\.([4-9]|[1-9][0-9]+)(\.[0-9]+)?)?(-labs)?))?$`)

// Check returns an error if the Dockerfile or args need the user's permission. That is the case for a builder or a
// builder argument that may use the caches of others, and for an ADD that the daemon fetches itself, on the host's
// network.
func (d Dockerfile) Check(args map[string]string) error {
	if d.Syntax != "" && !scoped.MatchString(d.Syntax) {
		return fmt.Errorf("line %d: syntax=%s is not safe: %s; name Docker's own, such as docker/dockerfile:1", d.SyntaxLine, d.Syntax, ForeignCache)
	}
	if d.Heredoc > 0 && scoped.MatchString(d.Syntax) && !knowsHeredocs.MatchString(d.Syntax) {
		return fmt.Errorf("line %d: a heredoc is not safe with syntax=%s, which does not support it and would read its lines as instructions; name docker/dockerfile:1.4 or newer", d.Heredoc, d.Syntax)
	}
	var names []string
	for _, name := range ReservedArgs {
		if _, ok := args[name]; ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > 0 {
		return fmt.Errorf("the argument %s is not safe: %s", strings.Join(names, ", "), ForeignCache)
	}
	if len(d.fetched) > 0 {
		return fmt.Errorf("%s %s", d.fetched[0], fetchedOnHost)
	}
	return nil
}

// fetchedOnHost is the reason why ADD may only have sources in the context.
const fetchedOnHost = "is not safe: the daemon would fetch it on the host's network, whatever the build's network is; COPY a file of the context, or fetch it in a RUN step"

// CheckTriggers checks the instructions that an image runs in builds on it (ONBUILD), as Check does for a Dockerfile.
// image is its name in errors.
func CheckTriggers(image string, onBuild []string) error {
	for _, line := range onBuild {
		d, err := Parse(line, nil)
		if err == nil && (d.instructions != 1 || strings.ContainsAny(strings.TrimSpace(line), "\n\r")) {
			err = errTrigger
		}
		if err != nil {
			return fmt.Errorf("the image %s has an ONBUILD that cannot be read: %w", image, err)
		}
		if len(d.fetched) > 0 {
			_, trigger, _ := strings.Cut(d.fetched[0], ": ")
			return fmt.Errorf("the image %s has ONBUILD %s, which %s", image, trigger, fetchedOnHost)
		}
	}
	return nil
}

// isRemote reports whether a source of ADD may be something else than a path in the context: an address, or a
// variable that may contain one. Builders treat "https://...", "git@host:path", "host:path" and "github.com/..." as
// addresses.
func isRemote(source string) bool {
	literal, _, variable := strings.Cut(source, "$")
	literal = strings.NewReplacer(`"`, "", `'`, "", `\`, "", "`", "").Replace(literal)
	if strings.Contains(source, ":") || strings.HasPrefix(strings.ToLower(literal), "github.com/") {
		return true
	}
	return variable && !strings.Contains(literal, "/")
}
