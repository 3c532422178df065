package workspace

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fumehood/fumehood"
)

func TestWriteInputs_tables(t *testing.T) {
	type m = map[string]any
	var decoded any
	if err := json.Unmarshal([]byte(`[{"b":"x,y","a":1},{"a":1000000,"c":null},{"c":true}]`), &decoded); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file  string
		value any
		want  string
	}{
		"texts":   {"a.csv", []map[string]string{{"b": "2", "a": "1"}, {"a": "3"}}, "a,b\n1,2\n3,\n"},
		"decoded": {"a.csv", decoded, "a,b,c\n1,\"x,y\",\n1000000,,\n,,true\n"},
		"tabs":    {"a.tsv", []m{{"n": int8(-1), "f": 0.5, "j": json.Number("1e3")}}, "f\tj\tn\n0.5\t1e3\t-1\n"},
		"empty":   {"a.csv", []m{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			err := WriteInputs(t.Context(), dir, []Input{{Path: c.file, Value: c.value}})
			if got, rerr := os.ReadFile(filepath.Join(dir, c.file)); errors.Join(err, rerr) != nil || string(got) != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
	for says, value := range map[string]any{
		`row 1, column "a": a []int`: []m{{"a": 1}, {"a": []int{1}}},
		"row 0: not a map":           []any{nil},
		"row 1: not a map":           []any{m{}, []any{"a"}},
	} {
		err := WriteInputs(t.Context(), t.TempDir(), []Input{{Path: "a.csv", Value: value}})
		if !errors.Is(err, fumehood.ErrConfig) || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}
