package fake_test

import (
	"context"
	"fmt"

	"github.com/lazaret/lazaret"
	"github.com/lazaret/lazaret/provider/conformance/fake"
)

func Example() {
	provider := fake.New(fake.Options{Programs: map[string]fake.Program{
		"greet": func(_ context.Context, p *fake.Proc) int {
			name, err := p.ReadFile("name.txt")
			if err != nil {
				fmt.Fprintln(p.Stderr, "greet:", err)
				return 1
			}
			fmt.Fprintf(p.Stdout, "hello, %s", name)
			return 0
		},
	}})
	ctx := context.Background()
	sb, err := provider.Start(ctx, lazaret.Spec{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sb.Close(ctx)
	if err := sb.WriteFile(ctx, "name.txt", []byte("world"), lazaret.WriteOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	res, err := sb.Exec(ctx, lazaret.Cmd{Args: []string{"greet"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Outcome, res.ExitCode, res.Stdout.Text())
	// Output: exited 0 hello, world
}
