package hostpath

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		began := time.Now()
		_, err := InTime("/nfs/file", func() (string, error) {
			<-hung
			return "late", nil
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) || !strings.HasPrefix(err.Error(), "read /nfs/file: no answer ") || time.Since(began) != readTime {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		close(hung)
	})
	if got, err := InTime("x", func() (string, error) { return "in time", os.ErrNotExist }); got != "in time" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %q, %v", got, err)
	}
}
