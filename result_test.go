package fumehood

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

func TestOutput_Text(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes string
		cut   bool // earlier bytes were dropped
		want  string
	}{
		{"empty", "", false, ""},
		{"plain", "abc\n", false, "abc\n"},
		{"valid", "é☃\U0001F600", false, "é☃\U0001F600"},
		{"one mark for invalid bytes", "a\xff\xfe\xffb", false, "a\ufffdb"},
		{"two runs are two", "\xffa\xff", false, "\ufffda\ufffd"},
		{"an unfinished last character", "a\xe2\x98", false, "a\ufffd"},
		{"a replacement character stays", "\ufffd", false, "\ufffd"},
		{"NUL is a character", "a\x00b", false, "a\x00b"},
		{"cut in a two-byte character", "\xa9b", true, "b"},
		{"cut in one of three", "\x98\x83b", true, "b"},
		{"cut in one of four", "\x9f\x98\x80b", true, "b"},
		{"only the rest of a character", "\x98\x80", true, ""},
		{"cut between characters", "é", true, "é"},
		{"a stray byte is marked", "\x98b", false, "\ufffdb"},
		{"too many bytes for a rest", "\x80\x80\x80\x80b", true, "\ufffdb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Output{Bytes: []byte(c.bytes), Total: int64(len(c.bytes))}
			if c.cut {
				o.Total++
			}
			if got := o.Text(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if string(o.Bytes) != c.bytes {
				t.Error("Text changed the bytes")
			}
		})
	}
}

func TestResult_Success(t *testing.T) {
	for _, c := range []struct {
		result Result
		want   bool
	}{
		{Result{Outcome: Exited}, true},
		{Result{Outcome: Exited, ExitCode: 1}, false},
		{Result{Outcome: Signaled, Signal: 9, ExitCode: 137}, false},
		{Result{Outcome: TimedOut, ExitCode: -1}, false},
		{Result{Outcome: Lost}, false},
		{Result{}, false},
	} {
		if got := c.result.Success(); got != c.want {
			t.Errorf("%+v: %v", c.result, got)
		}
	}
}

func TestStream_String(t *testing.T) {
	if Stdout.String() != "stdout" || Stderr.String() != "stderr" {
		t.Errorf("%v, %v", Stdout, Stderr)
	}
}

// Outcomes has each constant of the type, and what repeats the list elsewhere has each of them.
func TestOutcomes(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "result.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	constants := 0
	ast.Inspect(file, func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok {
			if typ, ok := v.Type.(*ast.Ident); ok && typ.Name == "Outcome" {
				constants += len(v.Names)
			}
		}
		return true
	})
	if constants != len(Outcomes()) {
		t.Errorf("%d constants, %d outcomes", constants, len(Outcomes()))
	}
	for name, mark := range map[string]string{"docs/cli.md": "`", "docs/design/outcomes.md": "", "clients/python/src/fumehood/_types.py": `"`, "CHANGELOG.md": "`"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range Outcomes() {
			if !strings.Contains(string(text), mark+string(o)+mark) {
				t.Errorf("%s lacks the outcome %s", name, o)
			}
		}
	}
}
