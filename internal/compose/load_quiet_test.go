package compose

import (
	"bytes"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/fumehood/fumehood"
)

// The standard logger belongs to the program: Load neither sets its output nor logs what it returns as notes.
func TestLoad_logrus(t *testing.T) {
	var out bytes.Buffer
	was := logrus.StandardLogger().Out
	logrus.SetOutput(&out)
	defer logrus.SetOutput(was)
	if _, err := load(t, "services: {a: {image: \"x${UNSET}\"}}\n", fumehood.Compose{}); err != nil {
		t.Fatal(err)
	}
	if logrus.StandardLogger().Out != &out || out.Len() > 0 {
		t.Errorf("the log has %q, its output is %T", out.String(), logrus.StandardLogger().Out)
	}
}
