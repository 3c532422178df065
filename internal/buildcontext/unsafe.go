package buildcontext

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
	// ScopeArg is the argument of a build by which BuildKit sets a namespace for the ids of its mounts of caches, whatever
	// the Dockerfile makes them of: id, target, variables. Builders have it since Engine 20.10 and docker/dockerfile:1.2.
	ScopeArg = "BUILDKIT_CACHE_MOUNT_NS"
	// syntaxArg is the argument that names the builder, as "# syntax=" does.
	syntaxArg = "BUILDKIT_SYNTAX"
)

// ReservedArgs are the arguments by which a build could use caches that are not its own.
var ReservedArgs = []string{ScopeArg, syntaxArg}

// ForeignCache is why a Dockerfile or a project may not choose a builder, or the namespace of its caches.
const ForeignCache = "with it a build could read and change the caches of others"

// Scope names the caches of a build. Builds have the same where the same project builds the same folder: then they share
// what RUN --mount=type=cache keeps. Of a folder its real path counts. No scope is the beginning of another.
func Scope(project, context string) string {
	h := sha256.New()
	for _, dir := range []string{project, context} {
		if real, err := filepath.EvalSymlinks(dir); err == nil && dir != "" {
			dir = real
		}
		_, _ = fmt.Fprintf(h, "%d:%s", len(dir), dir) // a hash takes everything
	}
	return "fumehood-" + hex.EncodeToString(h.Sum(nil)[:16])
}

// scoped are the builders that keep to a scope: Docker's own, of the versions that know it. What a digest names could be an
// older one.
var scoped = regexp.MustCompile(`^(docker\.io/)?docker/dockerfile(:(latest|labs|1(\.([2-9]|[1-9][0-9]+)(\.[0-9]+)?)?(-labs)?))?$`)

// knowsHeredocs are those of the scoped builders that know heredocs.
var knowsHeredocs = regexp.MustCompile(`^(docker\.io/)?docker/dockerfile(:(latest|labs|1(\.([4-9]|[1-9][0-9]+)(\.[0-9]+)?)?(-labs)?))?$`)

// Check returns an error where the Dockerfile, or args, ask for what only the user may allow: a builder, or an argument of it,
// that may use the caches of others, or an ADD that the daemon itself fetches, on the host's network.
func (d Dockerfile) Check(args map[string]string) error {
	if d.Syntax != "" && !scoped.MatchString(d.Syntax) {
		return fmt.Errorf("line %d: syntax=%s is not safe: %s; name Docker's own, such as docker/dockerfile:1", d.SyntaxLine, d.Syntax, ForeignCache)
	}
	if d.Heredoc > 0 && scoped.MatchString(d.Syntax) && !knowsHeredocs.MatchString(d.Syntax) {
		return fmt.Errorf("line %d: a heredoc is not safe with syntax=%s, which does not know it and would read its lines as instructions; name docker/dockerfile:1.4 or newer", d.Heredoc, d.Syntax)
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

// fetchedOnHost is why ADD may have sources in the context only.
const fetchedOnHost = "is not safe: the daemon would fetch it on the host's network, whatever the build's network is; COPY a file of the context, or fetch it in a RUN step"

// CheckTriggers looks at what an image, here called by its name, runs in builds on it (ONBUILD), as Check looks at a Dockerfile.
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
			_, what, _ := strings.Cut(d.fetched[0], ": ")
			return fmt.Errorf("the image %s runs in builds on it %s, which %s", image, what, fetchedOnHost)
		}
	}
	return nil
}

// isRemote reports whether a source of ADD may be something else than a path in the context: an address, or what variables may
// make one. Builders take "https://...", "git@host:path", "host:path" and "github.com/..." for addresses.
func isRemote(source string) bool {
	literal, _, variable := strings.Cut(source, "$")
	literal = strings.NewReplacer(`"`, "", `'`, "", `\`, "", "`", "").Replace(literal)
	if strings.Contains(source, ":") || strings.HasPrefix(strings.ToLower(literal), "github.com/") {
		return true
	}
	return variable && !strings.Contains(literal, "/")
}
