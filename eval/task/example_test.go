package task_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/eval/task"
	"github.com/fumehood/fumehood/provider/fake"
)

func Example() {
	ctx := context.Background()
	provider := fake.New(fake.Options{Programs: map[string]fake.Program{"cat": func(_ context.Context, p *fake.Proc) int {
		text, err := p.ReadFile(p.Args[1])
		if err != nil {
			return 1
		}
		fmt.Fprint(p.Stdout, strings.ToUpper(string(text)))
		return 0
	}}})
	defer provider.Close(ctx)

	t, err := task.Init(ctx, task.Options{Name: "letters", Provider: provider, Samples: []task.Sample{
		{ID: "a", Files: map[string]task.Content{"in.txt": {Text: "alpha"}}},
		{ID: "b", Files: map[string]task.Content{"in.txt": {Data: "data:;base64,YmV0YQ=="}}},
	}})
	if err != nil {
		log.Panic(err)
	}
	defer t.Close(ctx) // also after an interrupt
	for _, sample := range []string{"a", "b"} {
		sandbox, err := t.Start(ctx, sample, 1)
		if err != nil {
			log.Panic(err)
		}
		result, err := sandbox.Exec(ctx, fumehood.Cmd{Args: []string{"cat", "in.txt"}})
		if err != nil {
			log.Panic(err)
		}
		fmt.Println(task.KeyOf(sandbox.Info()).Sample, result.Stdout.Text())
		if err := t.End(ctx, sandbox); err != nil {
			log.Panic(err)
		}
	}
	// Output:
	// a ALPHA
	// b BETA
}
