package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// plain returns a text in which what a terminal could take for an order is written as an escape, such as \x1b: control
// characters, those that change the direction of text, and bytes that are no UTF-8. Newlines and tabs stay.
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

// plainWriter writes what comes as plain text. Of a character that is not complete yet it waits for the rest.
type plainWriter struct {
	w    io.Writer
	rest []byte
}

func (p *plainWriter) Write(b []byte) (int, error) {
	text := append(p.rest, b...)
	end := len(text)
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				end = len(text) - n
			}
			break
		}
	}
	p.rest = append([]byte(nil), text[end:]...)
	if _, err := io.WriteString(p.w, plain(string(text[:end]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close writes what is left of a character that was never complete.
func (p *plainWriter) Close() error {
	_, err := io.WriteString(p.w, plain(string(p.rest)))
	p.rest = nil
	return err
}

// forPeople returns a writer of foreign text to w: as it is, or plain where a terminal shows it.
func forPeople(w io.Writer) io.WriteCloser {
	if isTerminal(w) {
		return &plainWriter{w: w}
	}
	return asItIs{w}
}

// isTerminal reports whether what is written to w is shown by a terminal.
func isTerminal(w io.Writer) bool {
	if o, is := w.(*output); is {
		w = o.w
	}
	f, is := w.(*os.File)
	return is && term.IsTerminal(int(f.Fd()))
}

type asItIs struct{ io.Writer }

func (asItIs) Close() error { return nil }
