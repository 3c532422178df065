package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/fumehood/fumehood/internal/jsontext"
)

// Text is a name, path, argument or variable, which may have any bytes. In JSON it is a string if it is UTF-8, or else an
// object {"base64": "..."}.
type Text = jsontext.Text

// Texts returns strings as texts.
func Texts(all []string) []Text { return jsontext.Of(all) }

// Env are variables by their names. In JSON they are an object, whose values are Texts, or a list of Texts of the form
// NAME=VALUE, which can have any names.
type Env map[string]string

// MarshalJSON encodes the variables as an object, or as a list if a name is not UTF-8.
func (e Env) MarshalJSON() ([]byte, error) {
	object, list, valid := map[string]Text{}, []Text{}, true
	for _, name := range slices.Sorted(maps.Keys(e)) {
		object[name], list = Text(e[name]), append(list, Text(name+"="+e[name]))
		valid = valid && utf8.ValidString(name)
	}
	if valid {
		return json.Marshal(object)
	}
	return json.Marshal(list)
}

// UnmarshalJSON decodes an object or a list. "null" leaves the variables unchanged.
func (e *Env) UnmarshalJSON(from []byte) error {
	if string(from) == "null" {
		return nil
	}
	env := Env{}
	if from[0] == '[' {
		var list []Text
		if err := json.Unmarshal(from, &list); err != nil {
			return err
		}
		for i, t := range list {
			name, value, ok := strings.Cut(string(t), "=")
			if _, twice := env[name]; !ok || twice {
				return fmt.Errorf("variable %d is not of the form NAME=VALUE, or set twice", i) // its value could be a secret
			}
			env[name] = value
		}
		*e = env
		return nil
	}
	var object map[string]Text
	if err := json.Unmarshal(from, &object); err != nil {
		return err
	}
	for name, value := range object {
		env[name] = string(value)
	}
	*e = env
	return nil
}
