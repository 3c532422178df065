package compose

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/docker/go-units"
)

// plainTag matches tags with text and plain fields only. Functions in the Engine's templates could produce text of any
// length.
var plainTag = regexp.MustCompile(`^([^{}]|\{\{ *\.[A-Za-z]+ *\}\})*$`)

// logging rejects drivers that send output elsewhere, and options that may use the daemon's own memory.
func (c *checking) logging(svc *types.ServiceConfig) {
	if svc.Logging == nil {
		return
	}
	if !slices.Contains([]string{"", "json-file", "local", "none"}, svc.Logging.Driver) {
		c.unsafe(of(svc, "logging", "driver"), svc.Logging.Driver, "the Engine sends the service's output elsewhere")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(svc.Logging.Options)) {
		value := svc.Logging.Options[key]
		if slices.Contains([]string{"max-size", "max-file", "compress", "mode", "labels", "env"}, key) || key == "tag" && plainTag.MatchString(value) {
			continue
		}
		c.unsafe(of(svc, "logging", "options", key), value, "the daemon may use memory for it that no limit covers")
	}
}

// Limits of the log of one service, whatever the project sets: bytes per file, and number of files.
const (
	maxLogSize  = 100 << 20
	maxLogFiles = 10
)

// log bounds the size of a service's log.
func (a *applying) log(svc *types.ServiceConfig) {
	l := types.LoggingConfig{Driver: "json-file"}
	if svc.Logging != nil {
		l = *svc.Logging
		l.Driver = cmp.Or(l.Driver, "json-file")
	}
	if l.Driver != "json-file" && l.Driver != "local" {
		return
	}
	was := l.Options
	l.Options = maps.Clone(was)
	if l.Options == nil {
		l.Options = types.Options{}
	}
	if l.Driver == "json-file" { // the local driver has its own bounds
		files := "1"
		if was["compress"] == "true" {
			files = "2" // the Engine compresses only full files
		}
		l.Options["max-size"], l.Options["max-file"] = cmp.Or(was["max-size"], "10m"), cmp.Or(was["max-file"], files)
	}
	if size, err := units.FromHumanSize(l.Options["max-size"]); l.Options["max-size"] != "" && (err != nil || size <= 0 || size > maxLogSize) {
		l.Options["max-size"] = fmt.Sprint(maxLogSize)
	}
	if files, err := strconv.Atoi(l.Options["max-file"]); l.Options["max-file"] != "" && (err != nil || files < 1 || files > maxLogFiles) {
		l.Options["max-file"] = fmt.Sprint(maxLogFiles)
	}
	svc.Logging = &l
	if !maps.Equal(was, l.Options) {
		a.change(svc, "logging", "", fmt.Sprintf("%s, max-file %s, max-size %s", l.Driver, l.Options["max-file"], l.Options["max-size"]), "logs are bounded")
	}
}
