package jsontext_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/jsontext"
)

// FuzzWriteText compares WriteText with package json.
func FuzzWriteText(f *testing.F) {
	for _, text := range []string{
		"", "plain", "a\"b\\c\x00\x1b\b\f\n\r\t\x7f", "\xff\xfe\xe2\x80", "\u2028\u2029\ufffd<&>", "ü€😀", "\xed\xa0\x80x",
		strings.Repeat("a", jsontext.TextPart-1) + "ü\xff\xff\xfe\xffb", strings.Repeat("\xff", 2*jsontext.TextPart) + "b", strings.Repeat("ü", 2*jsontext.TextPart) + "\xff",
	} {
		f.Add([]byte(text), int64(0))
		f.Add([]byte(text), int64(1000))
	}
	f.Fuzz(func(t *testing.T, content []byte, dropped int64) {
		o := fumehood.Output{Bytes: content, Total: int64(len(content)) + max(dropped, 0)}
		var want, got bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(o.Text()); err != nil {
			t.Fatal(err)
		}
		if err := jsontext.WriteText(&got, o.Whole()); err != nil || `"`+got.String()+"\"\n" != want.String() {
			t.Errorf("got %s, %v, not %s", got.String(), err, want.String())
		}
	})
}

// TestWriteText_parts checks that text is encoded in parts, and that no part ends within a character.
func TestWriteText_parts(t *testing.T) {
	t.Parallel()
	for _, character := range []string{"a", "ü", "€", "😀", "\xff", "€\xe2\x82"} {
		for shift := range utf8.UTFMax {
			content := []byte(strings.Repeat("a", shift) + strings.Repeat(character, 3*jsontext.TextPart))
			var got parts
			if err := jsontext.WriteText(&got, content); err != nil {
				t.Fatal(err)
			}
			if want := strings.ToValidUTF8(string(content), "\ufffd"); got.text.String() != want {
				t.Errorf("%q after %d bytes: wrong text of %d bytes, want %d", character, shift, got.text.Len(), len(want))
			}
			// Each invalid byte becomes a U+FFFD of three bytes.
			if got.longest > 3*jsontext.TextPart {
				t.Errorf("%q after %d bytes: a part of %d bytes", character, shift, got.longest)
			}
		}
	}
}

// parts records the written text and the length of the longest write.
type parts struct {
	text    strings.Builder
	longest int
}

func (p *parts) Write(b []byte) (int, error) {
	p.longest = max(p.longest, len(b))
	return p.text.Write(b)
}
