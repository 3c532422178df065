package compose

import (
	"bytes"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/fumehood/fumehood"
)

// The logger is the program's: what is loaded neither sets its output nor tells it of what notes tell.
func TestLoadingLeavesTheProgramsLogAlone(t *testing.T) {
	var out bytes.Buffer
	was := logrus.StandardLogger().Out
	logrus.SetOutput(&out)
	defer logrus.SetOutput(was)
	if _, err := load(t, "services: {a: {image: \"x${UNSET}\"}}\n", fumehood.Compose{}); err != nil {
		t.Fatal(err)
	}
	if logrus.StandardLogger().Out != &out || out.Len() > 0 {
		t.Errorf("the log has %q, and goes to %T", out.String(), logrus.StandardLogger().Out)
	}
}
