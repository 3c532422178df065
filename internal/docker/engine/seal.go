package engine

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/fumehood/fumehood/internal/owner"
)

// LabelSeal proves that a process with the user's secret set an object's labels. Its value has fields separated by
// spaces: "v1", an HMAC-SHA256 in hexadecimal digits, the object's name, and the names of the labels that were set.
// Names are escaped as in a URL's query. The HMAC covers the object's kind, its name, and these labels with their
// values.
const LabelSeal = owner.LabelPrefix + "seal"

const sealVersion = "v1"

// Secret is the key of seals; see owner.Secret.
type Secret []byte

// composePrefix is the prefix of Compose's labels. Fumehood reads some of them. On an object with a valid seal, only
// those that the seal covers count.
const composePrefix = "com.docker.compose."

// seal returns the labels of an object to be created, with their seal. It returns labels unchanged if they don't mark
// an object of Fumehood.
func (s Secret) seal(kind Kind, name string, labels map[string]string) map[string]string {
	if labels[owner.LabelOwner] == "" && labels[owner.LabelCache] == "" {
		return labels
	}
	labels = maps.Clone(labels)
	delete(labels, LabelSeal)
	fields := []string{sealVersion, hex.EncodeToString(s.mac(kind, name, labels)), url.QueryEscape(name)}
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		fields = append(fields, url.QueryEscape(label))
	}
	labels[LabelSeal] = strings.Join(fields, " ")
	return labels
}

func (s Secret) mac(kind Kind, name string, labels map[string]string) []byte {
	text, _ := json.Marshal(struct { // only strings: cannot fail; sorts the labels
		Version string
		Kind    Kind
		Name    string
		Labels  map[string]string
	}{sealVersion, kind, name, labels})
	h := hmac.New(sha256.New, s)
	_, _ = h.Write(text) // never fails
	return h.Sum(nil)
}

// open returns the labels of an object that can be trusted. It drops Fumehood's labels that the seal doesn't cover: a
// container also has its image's labels, and an image those of its base. genuine reports whether the seal is valid
// for an object of this kind with one of these names. Otherwise all of Fumehood's labels are dropped.
//
// An image that has lost all its names is genuine whatever name it was sealed with: the name may have moved to a
// later image.
func (s Secret) open(kind Kind, names []string, labels map[string]string) (trusted map[string]string, genuine bool) {
	covered, genuine := s.verify(kind, names, labels)
	trusted = map[string]string{}
	for label, value := range labels {
		sealed := strings.HasPrefix(label, owner.LabelPrefix) || genuine && strings.HasPrefix(label, composePrefix)
		if _, is := covered[label]; is || !sealed {
			trusted[label] = value
		}
	}
	return trusted, genuine
}

// verify returns the labels that a valid seal covers.
func (s Secret) verify(kind Kind, names []string, labels map[string]string) (covered map[string]string, valid bool) {
	fields := strings.Split(labels[LabelSeal], " ")
	if len(fields) < 3 || fields[0] != sealVersion {
		return nil, false
	}
	name, err := url.QueryUnescape(fields[2])
	nameless := kind == ImageKind && len(names) == 0
	if err != nil || !nameless && !slices.Contains(names, name) {
		return nil, false
	}
	covered = map[string]string{}
	for _, field := range fields[3:] {
		label, err := url.QueryUnescape(field)
		if err != nil {
			return nil, false
		}
		value, is := labels[label]
		if !is {
			return nil, false
		}
		covered[label] = value
	}
	mac, err := hex.DecodeString(fields[1])
	if err != nil || !hmac.Equal(mac, s.mac(kind, name, covered)) {
		return nil, false
	}
	return covered, true
}

// claims reports whether labels mark an object as Fumehood's.
func claims(labels map[string]string) bool {
	return labels[owner.LabelOwner] != "" || labels[owner.LabelCache] != ""
}
