package imagestore

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/guest/archive"
	"github.com/fumehood/fumehood/internal/hostpath"
)

// source is where an image is read from.
type source string

// The sources, which are also the prefixes of references.
const (
	anySource     source = ""         // a name: the store, the Engine, a registry
	fromRegistry  source = "registry" // a name: the store, a registry
	byID          source = "id"       // the store, the Engine
	dockerArchive source = hostpath.DockerArchive
	ociLayout     source = hostpath.OCILayout
	dockerDaemon  source = "docker-daemon"
)

// reference is a parsed reference.
type reference struct {
	text      string
	source    source
	name      name.Reference // of anySource and dockerDaemon
	given     string         // the name or id as given, for the Engine
	full      string         // the name with registry and tag, or the id
	id        v1.Hash        // of byID
	path, tag string         // of files; tag may be empty
}

// parse parses a reference as the user wrote it.
func parse(text string) (reference, error) {
	r := reference{text: text, given: text}
	if id, err := v1.NewHash(text); err == nil && id.Algorithm == "sha256" {
		r.source, r.id, r.full = byID, id, text
		return r, nil
	}
	if kind, file, tag := hostpath.OfImage(text); kind != "" {
		r.source, r.tag = source(kind), tag
		if file == "" {
			return r, badRef(text, errors.New("path missing"))
		}
		var err error
		r.path, err = filepath.Abs(file)
		return r, err
	}
	if name, ok := strings.CutPrefix(text, string(dockerDaemon)+":"); ok {
		r.source, r.given = dockerDaemon, name
	}
	parsed, err := name.ParseReference(r.given)
	if err != nil {
		return r, badRef(text, err)
	}
	r.name, r.full = parsed, parsed.Name()
	return r, nil
}

func badRef(text string, err error) error {
	hint := "write NAME[:TAG|@DIGEST], docker-archive:FILE[:TAG], oci:FOLDER[:TAG], oci-archive:FILE[:TAG] or docker-daemon:NAME"
	return &fumehood.Error{Op: "read image reference " + text, Class: fumehood.ErrConfig, Err: err, Hint: hint}
}

// key identifies a reference by name or id in the names of files.
func (r reference) key() string { return digest([]byte(string(r.source) + ":" + r.full)).Hex }

// record is what the store knows about a reference by name.
type record struct {
	Ref    string  // the name with registry and tag, or an id of the Engine
	ID     v1.Hash // of the image
	Engine string  `json:",omitempty"` // the image's id in the Engine that it was read from
	Pinned string  `json:",omitempty"` // of a registry: the name with the digest of its manifest or index
}

// maxRecord is the maximum size of a record, in bytes.
const maxRecord = 64 << 10

// readRecord returns the record of a key. It returns nil if there is no record, or if the record is damaged.
func (s *Store) readRecord(key string) (*record, error) {
	content, err := archive.ReadFile(s.path(refsDir, key), maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rec record
	if err := json.Unmarshal(content, &rec); err != nil || rec.ID.Algorithm != "sha256" {
		s.opts.Logger.Warn("the image store has a damaged record", "file", s.path(refsDir, key), "error", err)
		return nil, nil
	}
	return &rec, nil
}

// writeRecord writes the record of a key if it has changed.
func (s *Store) writeRecord(ctx context.Context, key string, rec record) error {
	if known, err := s.readRecord(key); err == nil && known != nil && *known == rec {
		return nil
	}
	content, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	release, err := s.lock(ctx, storeLock, true)
	if err != nil {
		return err
	}
	defer release()
	return s.write(refsDir, key, content)
}
