package fumehood_test

import (
	"errors"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestASandboxIsSaidToBeForASampleWhenThatIsKnown(t *testing.T) {
	sb, lines := recorded(t, fumehood.Spec{Sample: fumehood.Sample{Task: "t"}})
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"say"}}); err != nil {
		t.Fatal(err)
	}
	of := fumehood.Sample{Task: "t", ID: "one", Epoch: 2}
	sb.Assign(of)
	if got := sb.Info().Sample; got != of {
		t.Errorf("got %+v", got)
	}
	before := len(lines())
	if _, err := sb.Exec(t.Context(), fumehood.Cmd{Args: []string{"say"}}); err != nil {
		t.Fatal(err)
	}
	for i, l := range lines() {
		sample, _ := l["sample"].(string)
		if l["task"] != "t" || (sample == "one") != (i >= before) {
			t.Errorf("line %d: %v", i, l)
		}
	}
}

func TestASandboxIsCheckedBeforeItIsUsed(t *testing.T) {
	sb := startFake(t, fumehood.Spec{})
	if err := sb.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if err := sb.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sb.Check(t.Context()); !errors.Is(err, fumehood.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}
