package workspace

import (
	"encoding/json"

	"github.com/fumehood/fumehood/internal/jsontext"
)

// The JSON forms embed the plain type, and have paths that may not be UTF-8.
type (
	plainEntry Entry
	entryJSON  struct {
		Path jsontext.Text `json:"path"`
		*plainEntry
		Target jsontext.Text `json:"target,omitempty"`
	}
	plainSkipped Skipped
	skippedJSON  struct {
		Path jsontext.Text `json:"path"`
		*plainSkipped
	}
	plainChange Change
	changeJSON  struct {
		Path jsontext.Text `json:"path"`
		*plainChange
	}
)

// MarshalJSON encodes the entry.
func (e Entry) MarshalJSON() ([]byte, error) {
	return json.Marshal(entryJSON{jsontext.Text(e.Path), (*plainEntry)(&e), jsontext.Text(e.Target)})
}

// UnmarshalJSON decodes an entry.
func (e *Entry) UnmarshalJSON(text []byte) error {
	form := entryJSON{jsontext.Text(e.Path), (*plainEntry)(e), jsontext.Text(e.Target)}
	err := json.Unmarshal(text, &form)
	e.Path, e.Target = string(form.Path), string(form.Target)
	return err
}

// MarshalJSON encodes the description.
func (s Skipped) MarshalJSON() ([]byte, error) {
	return json.Marshal(skippedJSON{jsontext.Text(s.Path), (*plainSkipped)(&s)})
}

// UnmarshalJSON decodes a description.
func (s *Skipped) UnmarshalJSON(text []byte) error {
	form := skippedJSON{jsontext.Text(s.Path), (*plainSkipped)(s)}
	err := json.Unmarshal(text, &form)
	s.Path = string(form.Path)
	return err
}

// MarshalJSON encodes the change.
func (c Change) MarshalJSON() ([]byte, error) {
	return json.Marshal(changeJSON{jsontext.Text(c.Path), (*plainChange)(&c)})
}

// UnmarshalJSON decodes a change.
func (c *Change) UnmarshalJSON(text []byte) error {
	form := changeJSON{jsontext.Text(c.Path), (*plainChange)(c)}
	err := json.Unmarshal(text, &form)
	c.Path = string(form.Path)
	return err
}
