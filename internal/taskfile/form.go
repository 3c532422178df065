package taskfile

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/fumehood/fumehood/internal/score"
	"github.com/fumehood/fumehood/internal/strict"
)

// The values of Grader.Score and Grader.OnFailure.
const (
	scoreJSON      = "json"
	scoreExitCode  = "exit_code"
	onFailureScore = "score"
	onFailureError = "error"
)

var forms = strict.Forms(map[string]strict.Form{
	"some":    {Wanted: "a text that is not empty", Pattern: regexp.MustCompile(`.`)},
	"id":      {Wanted: "a text of 1 to 200 characters without control characters", Pattern: regexp.MustCompile(`^[^\x00-\x1f\x7f]{1,200}$`)},
	"command": {Wanted: "a command: a list, or a text for sh"},
	"regexp":  {Wanted: "a regular expression"},
	"score":   {Choices: []string{scoreJSON, scoreExitCode}},
	"failure": {Choices: []string{onFailureScore, onFailureError}},
	"outcome": {Choices: outcomes()},
})

func outcomes() (names []string) {
	for _, o := range score.Outcomes() {
		names = append(names, string(o))
	}
	return names
}

// types have readers of their own, because their YAML form differs from their Go type.
var types = map[reflect.Type]func(*strict.Decoder, *yaml.Node, string) any{
	reflect.TypeFor[Args]():            readArgs,
	reflect.TypeFor[[]string]():        readTexts,
	reflect.TypeFor[[]int]():           readCodes,
	reflect.TypeFor[json.RawMessage](): readJSON,
	reflect.TypeFor[score.Artifact]():  readArtifact,
	reflect.TypeFor[Content]():         readContent,
	reflect.TypeFor[Environment]():     readEnvironment,
	reflect.TypeFor[Grader]():          readGrader,
}

// readEnvironment reads an environment, and the line of its files.
func readEnvironment(d *strict.Decoder, n *yaml.Node, path string) any {
	var e Environment
	d.Fields(n, path, reflect.ValueOf(&e).Elem())
	e.line = cmp.Or(d.Lines[path+".file"], d.Lines[path+".compose"], d.Lines[path+".dockerfile"], n.Line)
	return e
}

// readGrader reads a grader, and the line of its hidden files.
func readGrader(d *strict.Decoder, n *yaml.Node, path string) any {
	var g Grader
	d.Fields(n, path, reflect.ValueOf(&g).Elem())
	g.line = cmp.Or(d.Lines[path+".hidden"], n.Line)
	return g
}

// readArgs reads a command.
func readArgs(d *strict.Decoder, n *yaml.Node, path string) any {
	if n.Kind == yaml.ScalarNode {
		text, ok := d.Text(n, path, forms["command"].What())
		if ok && text == "" {
			d.Wrong(n, path, forms["command"].What())
		}
		return Args{"sh", "-c", text}
	}
	if n.Kind == yaml.SequenceNode && (len(n.Content) == 0 || strict.DescribeValue(strict.Target(n.Content[0])) == `""`) {
		d.Problem(n.Line, path, "a program", strict.Nothing, "")
	}
	return Args(d.Texts(n, path))
}

// readTexts reads a list of texts, or a single text.
func readTexts(d *strict.Decoder, n *yaml.Node, path string) any {
	if n.Kind == yaml.ScalarNode {
		text, _ := d.Text(n, path, "text, or a list of texts")
		return []string{text}
	}
	return d.Texts(n, path)
}

// readCodes reads a list of exit codes, or a single exit code.
func readCodes(d *strict.Decoder, n *yaml.Node, path string) any {
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	if len(items) == 0 {
		d.Wrong(n, path, "an exit code")
	}
	var codes []int
	for _, item := range items {
		item = strict.Target(item)
		code, ok := strict.Integer(item)
		if !ok || code < 0 || code > 255 {
			d.Wrong(item, path, "an exit code from 0 to 255, or a list of them")
			continue
		}
		codes = append(codes, int(code))
	}
	return codes
}

// readArtifact reads an artifact, or just its path.
func readArtifact(d *strict.Decoder, n *yaml.Node, path string) any {
	var a score.Artifact
	if n.Kind == yaml.ScalarNode {
		d.Value(n, path, reflect.ValueOf(&a.Path).Elem(), forms["some"])
	} else {
		d.Fields(n, path, reflect.ValueOf(&a).Elem())
	}
	return a
}

// maxJSON bounds the number of values in expected JSON. Aliases could otherwise make it arbitrarily large.
const maxJSON = 100_000

// readJSON reads a value of any kind as JSON.
func readJSON(d *strict.Decoder, n *yaml.Node, path string) any {
	left := maxJSON
	v, err := jsonOf(n, &left)
	if err == nil {
		var text []byte
		if text, err = json.Marshal(v); err == nil {
			return json.RawMessage(text)
		}
	}
	d.Problem(n.Line, path, "a JSON value", err.Error(), "")
	return nil
}

// numberOf returns a decimal number of YAML, such as +1_000 or .5, as JSON would write it. Other texts stay invalid in
// JSON: hexadecimal numbers, and infinity.
func numberOf(text string) string {
	text, negative := strings.CutPrefix(strings.TrimPrefix(strings.ReplaceAll(text, "_", ""), "+"), "-")
	whole, fraction, point := strings.Cut(text, ".")
	if point {
		text = cmp.Or(whole, "0") + "." + fraction
		if fraction == "" || fraction[0] < '0' || fraction[0] > '9' { // 1. and 1.e5
			text = cmp.Or(whole, "0") + ".0" + fraction
		}
	}
	if negative {
		text = "-" + text
	}
	return text
}

// jsonOf converts a value of YAML to JSON. Decimal numbers keep all their digits.
func jsonOf(n *yaml.Node, left *int) (any, error) {
	n = strict.Target(n)
	if *left--; *left < 0 {
		return nil, fmt.Errorf("more than %d", maxJSON)
	}
	switch n.Kind {
	case yaml.SequenceNode:
		list := []any{}
		for _, item := range n.Content {
			v, err := jsonOf(item, left)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case yaml.MappingNode:
		object := map[string]any{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := strict.Target(n.Content[i])
			if !strict.IsText(key) {
				return nil, fmt.Errorf("a key that is not text on line %d", key.Line)
			}
			if _, twice := object[key.Value]; twice {
				return nil, fmt.Errorf("the key %q twice", strict.Short(key.Value))
			}
			v, err := jsonOf(n.Content[i+1], left)
			if err != nil {
				return nil, err
			}
			object[key.Value] = v
		}
		return object, nil
	}
	if strict.IsText(n) {
		return n.Value, nil
	}
	if n.Tag == "!!int" || n.Tag == "!!float" {
		if text := numberOf(n.Value); json.Valid([]byte(text)) {
			return json.Number(text), nil
		}
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, err
	}
	return v, nil
}
