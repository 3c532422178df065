package docker

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

// A number is an id, even if a user or group of the image has it as its name.
func TestProvider_Start_numericUser(t *testing.T) {
	t.Parallel()
	b := newBuilder(t, Options{})
	image := `build: {labels: {fumehood-test: ` + b.mark + `}, dockerfile_inline: "FROM fumehood-test/busybox\nRUN for n in 1002 9223372036854775808; do echo $$n:x:0:0::/:/bin/sh >> /etc/passwd; echo $$n:x:0: >> /etc/group; done"}, init: true, command: [sleep, infinity]`
	project := func(user string) fumehood.Spec {
		return fumehood.Spec{Compose: &fumehood.Compose{Content: "services: {default: {" + user + image + "}}"}}
	}
	sb, err := b.Start(t.Context(), project(""))
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := sb.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	who := func(svc fumehood.Service, args ...string) string {
		res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: args})
		if err != nil || !res.Success() {
			t.Fatalf("%+v, %v", res, err)
		}
		return strings.TrimSpace(res.Stdout.Text())
	}
	for user, want := range map[string]string{"1002": "1002:0", "1001:": "1001:0", ":1002": "0:1002"} {
		if got := who(sb.As(user), "sh", "-c", "echo $(id -u):$(id -g)"); got != want {
			t.Errorf("user %q is %s, want %s", user, got, want)
		}
	}
	for _, user := range []string{"9223372036854775808", "0:9223372036854775808"} {
		for _, svc := range []fumehood.Service{sb, sb.ViaEngine()} {
			if res, err := svc.Exec(t.Context(), fumehood.Cmd{Args: []string{"id"}, User: user}); !errors.Is(err, fumehood.ErrUserNotFound) {
				t.Errorf("user %s: %+v, %v", user, res, err)
			}
			if err := svc.WriteFile(t.Context(), "/new", nil, fumehood.WriteOptions{Owner: user}); !errors.Is(err, fumehood.ErrUserNotFound) {
				t.Errorf("owner %s: %v", user, err)
			}
		}
		failed, err := b.Start(t.Context(), project("user: '"+user+"', "))
		if !errors.Is(err, fumehood.ErrConfig) {
			t.Errorf("user %s: %v", user, err)
		}
		if err == nil {
			_ = failed.Close(t.Context())
		}
	}
	for _, group := range []string{"1002", "01002", "2147483648", "9223372036854775808"} { // 1002 would be root's group
		failed, err := b.Start(t.Context(), project("group_add: ['"+group+"'], "))
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), group) {
			t.Errorf("group_add %s: %v", group, err)
		}
		if err == nil {
			_ = failed.Close(t.Context())
		}
	}
	if err := sb.ViaEngine().WriteFile(t.Context(), "/owned", nil, fumehood.WriteOptions{Owner: "1002:1002"}); err != nil {
		t.Fatal(err)
	}
	if got := who(sb, "stat", "-c", "%u:%g", "/owned"); got != "1002:1002" {
		t.Errorf("the file belongs to %s", got)
	}
}
