package box

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/owner"
	"github.com/fumehood/fumehood/internal/wire"
	"github.com/fumehood/fumehood/provider"
)

// Marks describe a sandbox to other processes, by the names of package owner. In an Engine they are labels, which a seal
// protects; native has them in a file of the sandbox's private folder.
type Marks map[string]string

// Marks returns the marks of a sandbox that this process starts. They have all names that describe a sandbox, since an
// Engine would take those that are missing from the image's labels.
func (s *Sandbox) Marks() Marks {
	info := provider.Describe(&s.Spec, fumehood.Info{Unenforced: s.About.Unenforced})
	m := Marks{
		owner.LabelSandbox: s.Spec.Name, owner.LabelKept: strconv.FormatBool(s.Spec.Keep), owner.LabelSeccomp: s.Spec.Seccomp,
		owner.LabelConfig: info.ConfigFile, owner.LabelEnv: strings.Join(info.EnvNames, "="), owner.LabelUnenforced: strings.Join(info.Unenforced, ","),
	}
	for name, value := range info.Labels {
		m[owner.LabelUser+name] = value
	}
	if !s.Spec.Keep {
		return m
	}
	m[owner.LabelKey], m[owner.LabelBinary], m[owner.LabelExpires] = hex.EncodeToString(s.Key), s.Spec.Binary, ""
	if !s.Expires.IsZero() {
		m[owner.LabelExpires] = s.Expires.UTC().Format(time.RFC3339)
	}
	return m
}

// Info returns the description of a sandbox, without its services. User labels inherited from an image do not count, because
// no seal covers them.
func (m Marks) Info(providerName string) fumehood.Info {
	info := fumehood.Info{Name: m[owner.LabelSandbox], Provider: providerName, ConfigFile: m[owner.LabelConfig]}
	for mark, value := range m {
		if name, ok := strings.CutPrefix(mark, owner.LabelUser); ok {
			if info.Labels == nil {
				info.Labels = map[string]string{}
			}
			info.Labels[name] = value
		}
	}
	if names := m[owner.LabelEnv]; names != "" {
		info.EnvNames = strings.Split(names, "=")
	}
	if limits := m[owner.LabelUnenforced]; limits != "" {
		info.Unenforced = strings.Split(limits, ",")
	}
	return info
}

// Key returns the secret of a kept sandbox's guests; nil if there is none.
func (m Marks) Key() []byte {
	key, err := hex.DecodeString(m[owner.LabelKey])
	if err != nil || len(key) != wire.SecretSize {
		return nil
	}
	return key
}

// Expires returns when a kept sandbox expires; zero if it does not.
func (m Marks) Expires() time.Time {
	t, _ := time.Parse(time.RFC3339, m[owner.LabelExpires]) // zero on an error
	return t
}
