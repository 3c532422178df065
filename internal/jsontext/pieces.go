package jsontext

import (
	"encoding/base64"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteBase64 writes content in base64, piece by piece.
func WriteBase64(w io.Writer, content []byte) error {
	enc := base64.NewEncoder(base64.StdEncoding, w)
	if _, err := enc.Write(content); err != nil {
		return err
	}
	return enc.Close()
}

// textPart is the maximum number of bytes that WriteText encodes at a time.
const textPart = 32 << 10

// WriteText writes content as a JSON string without the quotes, piece by piece: package encoding/json holds a text several
// times, and six bytes stand for each NUL. Each run of invalid bytes becomes one U+FFFD.
func WriteText(w io.Writer, content []byte) error {
	for len(content) > 0 {
		n := len(content)
		if n > textPart {
			n = WholeRunes(content[:textPart])
		}
		text, err := Marshal(strings.ToValidUTF8(string(content[:n]), "\ufffd"))
		if err == nil {
			_, err = w.Write(text[1 : len(text)-1])
		}
		if err != nil {
			return err
		}
		if isInvalid(utf8.DecodeLastRune(content[:n])) { // its U+FFFD stands for the whole run
			for isInvalid(utf8.DecodeRune(content[n:])) {
				n++
			}
		}
		content = content[n:]
	}
	return nil
}

// isInvalid reports whether a decoded character is a byte that is not UTF-8.
func isInvalid(r rune, size int) bool { return r == utf8.RuneError && size == 1 }

// WholeRunes returns the length of text without an incomplete character at its end.
func WholeRunes(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				return len(text) - n
			}
			break
		}
	}
	return len(text)
}
