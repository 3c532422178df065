package guest

import (
	"os"
	"strconv"
	"strings"

	"github.com/fumehood/fumehood/internal/setup"
)

// keepCapabilities drops the capabilities that are not in the set of the argument --capabilities=HEX. They are
// dropped for good, for this process and everything that it starts. Without the argument, nothing is dropped.
func keepCapabilities(args []string) error {
	for _, arg := range args {
		if digits, ok := strings.CutPrefix(arg, "--capabilities="); ok {
			set, err := strconv.ParseUint(digits, 16, 64)
			if err != nil {
				return err
			}
			return setup.LimitCapabilities(set)
		}
	}
	return nil
}

// lacksCapabilities reports whether this process runs as root without some capability of its bounding set. An Engine
// before version 24 starts root like that in a container of another user.
func lacksCapabilities() bool {
	bounding, berr := setup.BoundingSet()
	permitted, perr := setup.PermittedSet()
	return os.Geteuid() == 0 && berr == nil && perr == nil && bounding&^permitted != 0
}
