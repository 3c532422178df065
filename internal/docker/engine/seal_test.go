package engine

import (
	"maps"
	"strings"
	"testing"

	"github.com/fumehood/fumehood/internal/owner"
)

func TestSecret_open(t *testing.T) {
	own := map[string]string{owner.LabelOwner: "me", owner.LabelSandbox: "x", "theirs, too": "a=b c", composePrefix + "service": "web"}
	sealed := testSecret.seal(Container, "x", own)
	with := func(label, value string) map[string]string {
		l := maps.Clone(sealed)
		l[label] = value
		return l
	}
	without := func(label string) map[string]string {
		l := maps.Clone(sealed)
		delete(l, label)
		return l
	}
	for name, c := range map[string]struct {
		secret  Secret
		kind    Kind
		names   []string
		labels  map[string]string
		genuine bool
	}{
		"own":                   {testSecret, Container, []string{"x"}, sealed, true},
		"label_of_the_image":    {testSecret, Container, []string{"x"}, with(owner.LabelKept, "true"), true},
		"compose_of_the_image":  {testSecret, Container, []string{"x"}, with(composePrefix+"oneoff", "True"), true},
		"another_secret":        {Secret("another"), Container, []string{"x"}, sealed, false},
		"another_kind":          {testSecret, Volume, []string{"x"}, sealed, false},
		"another_name":          {testSecret, Container, []string{"y"}, sealed, false},
		"no_name":               {testSecret, Container, nil, sealed, false},
		"value_changed":         {testSecret, Container, []string{"x"}, with(owner.LabelSandbox, "y"), false},
		"others_value_changed":  {testSecret, Container, []string{"x"}, with("theirs, too", "y"), false},
		"label_gone":            {testSecret, Container, []string{"x"}, without(owner.LabelSandbox), false},
		"no_seal":               {testSecret, Container, []string{"x"}, own, false},
		"another_form":          {testSecret, Container, []string{"x"}, with(LabelSeal, strings.Replace(sealed[LabelSeal], "v1", "v2", 1)), false},
		"short":                 {testSecret, Container, []string{"x"}, with(LabelSeal, "v1 00"), false},
		"empty":                 {testSecret, Container, []string{"x"}, with(LabelSeal, ""), false},
		"no_hexadecimal_digits": {testSecret, Container, []string{"x"}, with(LabelSeal, "v1 xx x"), false},
		"covers_less":           {testSecret, Container, []string{"x"}, with(LabelSeal, sealed[LabelSeal][:strings.LastIndex(sealed[LabelSeal], " ")]), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, genuine := c.secret.open(c.kind, c.names, c.labels)
			if genuine != c.genuine {
				t.Fatalf("genuine: %v", genuine)
			}
			want := maps.Clone(own)
			if !genuine { // Compose's labels are kept too
				want = maps.Clone(c.labels)
				maps.DeleteFunc(want, func(label, _ string) bool { return strings.HasPrefix(label, owner.LabelPrefix) })
			}
			if !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestSecret_open_image(t *testing.T) {
	for name, c := range map[string]struct {
		sealed  string
		names   []string
		genuine bool
	}{
		"own":             {"a:1", []string{"a:1"}, true},
		"other_names_too": {"a:1", []string{"a:1", "b:1"}, true},
		"built_on_it":     {"a:1", []string{"b:1"}, false},
		"name_gone":       {"a:1", nil, true},
		"never_a_name":    {"", nil, true},
		"built_on_that":   {"", []string{"b:1"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			labels := testSecret.seal(ImageKind, c.sealed, map[string]string{owner.LabelCache: owner.EnvImage})
			if _, genuine := testSecret.open(ImageKind, c.names, labels); genuine != c.genuine {
				t.Errorf("genuine: %v", genuine)
			}
		})
	}
}

func TestSecret_seal(t *testing.T) {
	foreign := map[string]string{"a": "b", owner.LabelSandbox: "x"}
	if got := testSecret.seal(Volume, "x", foreign); !maps.Equal(got, foreign) {
		t.Errorf("labels without a mark of ours became %v", got)
	}
	own := map[string]string{owner.LabelOwner: "me"}
	sealed := testSecret.seal(Volume, "x", own)
	if len(own) != 1 || !maps.Equal(testSecret.seal(Volume, "x", sealed), sealed) {
		t.Errorf("sealing again gives another result, or changed its argument: %v", own)
	}
}

func FuzzSecret_open(f *testing.F) {
	sealed := testSecret.seal(Container, "x", map[string]string{owner.LabelOwner: "me", "a b": "c"})
	f.Add(sealed[LabelSeal], "me")
	f.Add("v1  ", "")
	f.Fuzz(func(t *testing.T, seal, name string) {
		labels := map[string]string{owner.LabelOwner: name, "a b": "c", LabelSeal: seal}
		if got, genuine := testSecret.open(Container, []string{"x"}, labels); genuine && (got[owner.LabelOwner] != "me" || got["a b"] != "c") {
			t.Errorf("a seal for %v: %q", got, seal)
		}
	})
}
