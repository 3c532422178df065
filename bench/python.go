package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/fumehood/fumehood/api"
)

// pythonContender is the Python client, used by clients/python/bench.py with a server over a unix socket. The program
// measures the calls: its times do not include the pipes to it.
type pythonContender struct {
	server, program *child
	binary, image   string
	took            time.Duration // of the last call
}

// findPython returns the path of python3. It returns an error if it is not installed, or too old.
func findPython(ctx context.Context) (string, error) {
	path, err := exec.LookPath("python3")
	if err != nil {
		return "", err
	}
	if exec.CommandContext(ctx, path, "-c", "import sys; sys.exit(sys.version_info < (3, 10))").Run() != nil {
		return "", errors.New("python3: not 3.10 or later")
	}
	return path, nil
}

// newPython starts a kept sandbox, which the command's contender removes, the server and the program.
func newPython(ctx context.Context, python string, command *commandContender) (*pythonContender, error) {
	root := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/fumehood/fumehood")
	if root == "" {
		return nil, errors.New("find the Python client: not run in its repository")
	}
	kept, err := command.up(ctx)
	if err != nil {
		return nil, err
	}
	server, address, err := serve(ctx, command.program)
	if err != nil {
		return nil, err
	}
	p := &pythonContender{server: server, binary: command.program, image: command.image}
	client := filepath.Join(root, "clients", "python")
	source := filepath.Join(client, "src")
	env := []string{"FUMEHOOD_BINARY=" + p.binary, "PYTHONPATH=" + source, "PYTHONDONTWRITEBYTECODE=1"}
	p.program, err = startChild(ctx, env, python, filepath.Join(client, "bench.py"), address, p.image, kept.sandbox)
	return p, err
}

// serve starts a server that ends with its standard input, and returns the address of its socket.
func serve(ctx context.Context, binary string) (*child, string, error) {
	server, err := startChild(ctx, nil, binary, "serve", "--stdio", "--allow-kept", "--log-level", "warn")
	if err != nil {
		return nil, "", err
	}
	var hello api.Hello
	err = server.ask(ctx, nil, &hello)
	return server, hello.Address, err
}

func (p *pythonContender) name() string { return byPython }

// call calls a method of the program, and returns the size that it reports.
func (p *pythonContender) call(ctx context.Context, method string, args map[string]any) (int64, error) {
	var answer struct{ NS, Size int64 }
	err := p.program.ask(ctx, map[string]any{"call": method, "args": args}, &answer)
	p.took = time.Duration(answer.NS)
	return answer.Size, err
}

func (p *pythonContender) start(ctx context.Context) (box, error) {
	_, err := p.call(ctx, "start", nil)
	return pythonBox{p}, err
}

func (p *pythonContender) close(ctx context.Context) error {
	var errs []error
	for _, c := range []*child{p.program, p.server} {
		if c != nil {
			errs = append(errs, c.close(ctx))
		}
	}
	return errors.Join(errs...)
}

// pythonBox is the sandbox that the program has started last.
type pythonBox struct{ contender *pythonContender }

// took implements clocked.
func (b pythonBox) took() time.Duration { return b.contender.took }

func (b pythonBox) exec(ctx context.Context, args ...string) (int64, error) {
	return b.contender.call(ctx, "run", map[string]any{"command": args})
}

// write writes other random content of the same size.
func (b pythonBox) write(ctx context.Context, path string, content []byte) error {
	_, err := b.contender.call(ctx, "write", map[string]any{"path": path, "size": len(content)})
	return err
}

func (b pythonBox) read(ctx context.Context, path string, size int64) error {
	got, err := b.contender.call(ctx, "read", map[string]any{"path": path})
	if err != nil {
		return err
	}
	return wantSize(got, size)
}

func (b pythonBox) remove(ctx context.Context) error {
	_, err := b.contender.call(ctx, "remove", nil)
	return err
}

// crowd runs commands over asyncio.
func (b pythonBox) crowd(ctx context.Context) error {
	_, err := b.contender.call(ctx, "crowd", map[string]any{"runs": crowdRuns, "at_once": crowd})
	return err
}

// process measures a new client: see processRows.
func (b pythonBox) process(ctx context.Context, row string) (time.Duration, error) {
	method, ok := map[string]string{runRow: "once", coldResult: "cold", warmResult: "warm"}[row]
	if !ok {
		return 0, errNotMeasured
	}
	_, err := b.contender.call(ctx, method, nil)
	return b.took(), err
}
