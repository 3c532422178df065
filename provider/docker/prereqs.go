package docker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/docker/engine"
	"github.com/fumehood/fumehood/internal/owner"
)

// checkEngine logs a warning about an old Engine, once a day, or returns an error with StrictPrereqs.
func (p *Provider) checkEngine(ctx context.Context) error {
	server, err := p.engine.Server(ctx)
	if err != nil || !engine.VersionLess(server.Version, engine.GoodEngine) {
		return err
	}
	reason := fmt.Sprintf("Docker Engine %s is older than %s", server.Version, engine.GoodEngine)
	if p.opts.StrictPrereqs {
		return &fumehood.Error{
			Op: "check prerequisites", Class: fumehood.ErrConfig, Err: errors.New(reason),
			Hint: "upgrade the Engine, or run without strict prerequisites",
		}
	}
	level := slog.LevelDebug
	if p.opts.Logger.Enabled(ctx, slog.LevelWarn) && firstToday(p.engine.Endpoint()+" "+server.Version, p.clock()) {
		level = slog.LevelWarn
	}
	p.opts.Logger.Log(ctx, level, reason+": it works, but lacks later fixes of its isolation", "endpoint", p.engine.Endpoint())
	return nil
}

// firstToday reports whether this is its first call with that name on this day (UTC), of all processes of this user. A
// file in the user's state folder remembers the day. If it cannot be written, firstToday returns true.
func firstToday(name string, now time.Time) bool {
	dir, err := owner.StateDir("warned")
	if err != nil || os.MkdirAll(dir, 0o700) != nil {
		return true
	}
	sum := sha256.Sum256([]byte(name))
	prefix := hex.EncodeToString(sum[:8]) + "-"
	today := prefix + now.UTC().Format(time.DateOnly)
	f, err := os.OpenFile(filepath.Join(dir, today), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // only one process succeeds
	if err != nil {
		return !errors.Is(err, fs.ErrExist)
	}
	_ = f.Close()                 // it is empty
	entries, _ := os.ReadDir(dir) // old files do no harm
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) && e.Name() != today {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return true
}
