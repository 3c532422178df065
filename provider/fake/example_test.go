package fake_test

import (
	"context"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/fake"
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
	sb, err := provider.Start(ctx, fumehood.Spec{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer sb.Close(ctx)
	if err := sb.WriteFile(ctx, "name.txt", []byte("world"), fumehood.WriteOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	res, err := sb.Exec(ctx, fumehood.Cmd{Args: []string{"greet"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Outcome, res.ExitCode, res.Stdout.Text())
	// Output: exited 0 hello, world
}
