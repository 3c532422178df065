// Package early makes the reaper of a program that imports it wait before most of the program is initialized. This
// saves the reaper 3 of 6 MiB, and its owner 28 ms of a start. Libraries must not import it: that is the program's
// decision.
package early

import "github.com/fumehood/fumehood/internal/owner/reaper"

func init() { reaper.Wait() }
