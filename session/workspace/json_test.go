package workspace

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestJSON_paths_not_utf8(t *testing.T) {
	t.Parallel()
	entry := Entry{Path: "caf\xe9", Type: Link, Mode: 0o777, Target: "to\xff"}
	for _, want := range []any{
		entry,
		Manifest{Entries: []Entry{entry, {Path: "plain", Size: 3}}, Skipped: []Skipped{{Path: "pipe\xff", What: "pipe"}}},
		Change{Path: "caf\xe9", Kind: Added, After: &entry, Omitted: "binary"},
	} {
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(want))
		if err := json.Unmarshal(text, got.Interface()); err != nil || !reflect.DeepEqual(got.Elem().Interface(), want) {
			t.Errorf("%s: got %+v, %v, want %+v", text, got.Elem(), err, want)
		}
	}
	text, err := json.Marshal(entry)
	if want := `{"path":{"base64":"Y2Fm6Q=="},"type":"link","mode":"0777","size":0,"target":{"base64":"dG//"}}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
}
