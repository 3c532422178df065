package fumehood_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/fake"
)

func ExampleProcess_Follow() {
	ctx := context.Background()
	provider := fake.New(fake.Options{Programs: map[string]fake.Program{
		"build": func(_ context.Context, p *fake.Proc) int {
			fmt.Fprint(p.Stdout, "compiling, linking, done")
			return 3
		},
	}})
	defer provider.Close(ctx)
	sb, err := provider.Start(ctx, fumehood.Spec{})
	if err != nil {
		log.Fatal(err)
	}

	request, answered := context.WithCancel(ctx)
	p, err := sb.Start(request, fumehood.Cmd{Args: []string{"build"}, Detach: true})
	if err != nil {
		log.Fatal(err)
	}
	id := p.Info().ID
	answered() // the command continues

	later, err := sb.Process(id)
	if err != nil {
		log.Fatal(err)
	}
	for chunk, err := range later.Follow(ctx, fumehood.Stdout, 11) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("from %d on: %s\n", chunk.Offset, chunk.Data)
	}
	res, err := later.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("exit code", res.ExitCode)
	if err := later.Forget(ctx); err != nil {
		log.Fatal(err)
	}
	// Output:
	// from 11 on: linking, done
	// exit code 3
}
