package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/fumehood/fumehood/internal/jsontext"
)

// plain returns text that is safe to print on a terminal. Control characters, characters that change the direction of
// text, and bytes that are not UTF-8 become escapes such as \x1b. Newlines and tabs stay.
func plain(text string) string {
	if !strings.ContainsFunc(text, isOrder) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case isOrder(r) && r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case isOrder(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

func isOrder(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r))
}

// plainWriter writes text through plain. It holds back an incomplete character until the rest arrives.
type plainWriter struct {
	w    io.Writer
	rest []byte
}

func (p *plainWriter) Write(b []byte) (int, error) {
	text := append(p.rest, b...)
	end := jsontext.WholeRunes(text)
	p.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(p.w, plain(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close writes the bytes of a character that was never completed.
func (p *plainWriter) Close() error {
	_, err := io.WriteString(p.w, plain(string(p.rest)))
	p.rest = nil
	return err
}

// forPeople returns a writer for untrusted text. It writes through plain if w is a terminal, else unchanged.
func forPeople(w io.Writer) io.WriteCloser {
	if isTerminal(w) {
		return &plainWriter{w: w}
	}
	return asItIs{w}
}

// isTerminal reports whether w writes to a terminal.
func isTerminal(w io.Writer) bool {
	if o, is := w.(*output); is {
		w = o.w
	}
	f, is := w.(*os.File)
	return is && term.IsTerminal(int(f.Fd()))
}

type asItIs struct{ io.Writer }

func (asItIs) Close() error { return nil }
