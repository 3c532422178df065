package fake_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/provider/fake"
)

func TestProvider_Start_copiesEnv(t *testing.T) {
	t.Parallel()
	p := fake.New(fake.Options{Programs: map[string]fake.Program{"env": func(_ context.Context, p *fake.Proc) int {
		fmt.Fprint(p.Stdout, p.Env)
		return 0
	}}})
	env := map[string]string{"A": "before"}
	sb, err := p.Start(t.Context(), fumehood.Spec{Env: env})
	if err != nil {
		t.Fatal(err)
	}
	env["A"] = "after"
	if res, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"env"}}); err != nil || res.Stdout.Text() != "[A=before]" {
		t.Errorf("got %+v, %v", res, err)
	}
}
