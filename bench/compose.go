package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
)

// composeContender uses `docker compose`, one process for each step, as evaluation frameworks do.
type composeContender struct {
	*cliContender
	file string
	made atomic.Int64
}

// newCompose finds the docker command's plugin. It returns an error if the plugin is not installed.
func newCompose(ctx context.Context, cli *cliContender, like hardening) (*composeContender, error) {
	if _, err := cli.run(ctx, "compose", "version"); err != nil {
		return nil, err
	}
	labels, err := ownerLabels()
	if err != nil {
		return nil, err
	}
	opts, err := profiles(like.SecurityOpt, cli.dir)
	if err != nil {
		return nil, err
	}
	service := map[string]any{
		"image": cli.image, "entrypoint": idle, "labels": labels, "pull_policy": "never",
		"network_mode": string(like.NetworkMode), "read_only": like.ReadonlyRootfs,
		"mem_limit": like.Memory, "memswap_limit": like.MemorySwap, "cpus": float64(like.NanoCPUs) / 1e9,
		"cap_drop": like.CapDrop, "cap_add": like.CapAdd, "security_opt": opts,
		"logging": map[string]any{"driver": like.LogConfig.Type, "options": like.LogConfig.Config},
	}
	if like.PidsLimit != nil {
		service["pids_limit"] = *like.PidsLimit
	}
	text, err := json.Marshal(map[string]any{"services": map[string]any{"box": service}}) // JSON is also YAML
	if err != nil {
		return nil, err
	}
	c := &composeContender{cliContender: cli, file: filepath.Join(cli.dir, "compose.yaml")}
	return c, os.WriteFile(c.file, text, 0o600)
}

func (c *composeContender) name() string { return byCompose }

func (c *composeContender) start(ctx context.Context) (box, error) {
	b := composeBox{c, "fumehood-bench-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(c.made.Add(1), 10)}
	_, err := b.compose(ctx, "up", "--detach")
	return b, err
}

// close does nothing: the folder belongs to the docker CLI's contender.
func (c *composeContender) close(context.Context) error { return nil }

type composeBox struct {
	c       *composeContender
	project string
}

func (b composeBox) compose(ctx context.Context, args ...string) ([]byte, error) {
	return b.c.run(ctx, append([]string{"compose", "--project-name", b.project, "--file", b.c.file}, args...)...)
}

func (b composeBox) exec(ctx context.Context, args ...string) (int64, error) {
	out, err := b.compose(ctx, append([]string{"exec", "--no-TTY", "box"}, args...)...)
	return int64(len(out)), err
}

func (b composeBox) write(ctx context.Context, path string, content []byte) error {
	file := filepath.Join(b.c.dir, "compose-write")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return err
	}
	_, err := b.compose(ctx, "cp", file, "box:"+path)
	return err
}

func (b composeBox) read(ctx context.Context, path string, size int64) error {
	file := filepath.Join(b.c.dir, "compose-read")
	if _, err := b.compose(ctx, "cp", "box:"+path, file); err != nil {
		return err
	}
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return wantSize(info.Size(), size)
}

func (b composeBox) remove(ctx context.Context) error {
	if _, err := b.compose(ctx, "down", "--volumes", "--timeout", "0"); err != nil {
		return fmt.Errorf("down: %w", err)
	}
	return nil
}
