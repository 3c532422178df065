package image

import "testing"

func TestMask(t *testing.T) {
	for name, value := range map[string]string{"MASK_A": "secret", "MASK_B": "secret-and-more", "MASK_C": "abc", "MASK_D": "", "MASK_E": "more secret", "MASK_F": "two\nlines", "MASK_G": "-----BEGIN\nMIIEvQIBADANBg\nab\n"} {
		t.Setenv(name, value)
	}
	names := []string{"MASK_A", "MASK_B", "MASK_C", "MASK_D", "MASK_E", "MASK_F", "MASK_G", "MASK_UNSET"}
	for text, want := range map[string]string{
		"":                                  "",
		"a secret, abc":                     "a ${MASK_A}, abc",
		"secret-and-more":                   "${MASK_B}",
		"secret-and-more secretsecret":      "${MASK_B} ${MASK_A}${MASK_A}",
		`found "two\nlines"`:                `found "${MASK_F}"`,
		"found two\nlines":                  "found ${MASK_F}",
		"key:\n  MIIEvQIBADANBg\n  ab":      "key:\n  ${MASK_G}\n  ab",
		"no more secret":                    "no ${MASK_E}",
		"MASK_A=secret; MASK_UNSET=nothing": "MASK_A=${MASK_A}; MASK_UNSET=nothing",
	} {
		if got := Mask(names, text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := Mask(nil, "secret"); got != "secret" {
		t.Errorf("without names: got %q", got)
	}
}
