package jsontext

import (
	"encoding/json"
	"testing"
)

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[Text]string{
		"":               `""`,
		"café \uFFFD":    `"café ` + "\uFFFD" + `"`,
		"caf\xe9":        `{"base64":"Y2Fm6Q=="}`,
		"\xed\xa0\x80":   `{"base64":"7aCA"}`, // a surrogate
		`{"base64":"a"}`: `"{\"base64\":\"a\"}"`,
	} {
		got, err := json.Marshal([]Text{text})
		if err != nil || string(got) != "["+want+"]" {
			t.Errorf("%q: got %s, %v, want %s", text, got, err, want)
		}
		var back []Text
		if err := json.Unmarshal(got, &back); err != nil || len(back) != 1 || back[0] != text {
			t.Errorf("%q came back as %q, %v", text, back, err)
		}
	}
	for _, bad := range []string{`{}`, `{"base64":null}`, `{"base64":"?"}`, `{"base64":"YQ==","text":"a"}`, `1`, `[]`} {
		var to Text
		if err := json.Unmarshal([]byte(bad), &to); err == nil {
			t.Errorf("%s is the text %q", bad, to)
		}
	}
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"café": "café", "caf\xe9 \uFFFD": `caf\xe9 ` + "\uFFFD", "\xf0\x9f": `\xf0\x9f`} {
		if got := Escape(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, good := range []string{`{}`, `"\ud83d\ude00"`, `"\\ud800"`, `"\u00e9"`, `"\`, `"\u12`, `"\uD83D\uDE00\n\""`, `"\uzzzz"`} {
		if err := Check([]byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{`"\ud800"`, `"\uDC00"`, `"\ud800\ud800\udc00"`, `"\ud800\n"`, `"\ude00\ud83d"`, `"\\\ud800"`, "\"\xff\"", "\"\xed\xa0\x80\""} {
		if err := Check([]byte(bad)); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(`"\ud83d\ude00\\ud800\ud800"`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var text string
		if Check(data) != nil || json.Unmarshal(data, &text) != nil {
			return
		}
		back, err := json.Marshal(Text(text)) // what passes is not altered, and stays the same
		var again string
		if err != nil || json.Unmarshal(back, &again) != nil || again != text {
			t.Errorf("%q became %q", text, again)
		}
	})
}
