package guests

import (
	"fmt"

	"github.com/fumehood/fumehood"
)

// minPIDs is the minimum process limit with a guest. The guest has 14 threads and a worker has 8. Go crashes a program
// that cannot create a thread it needs: with a limit of 24, fork bombs crashed workers; with 48 they did not.
const minPIDs = 48

// CheckLimits returns an ErrConfig if the limits of a spec leave a guest too little.
func CheckLimits(spec fumehood.Spec) error {
	n := spec.Limits.PIDs
	if n <= 0 || n >= minPIDs {
		return nil
	}
	return &fumehood.Error{
		Op: "start sandbox " + spec.Name, Class: fumehood.ErrConfig,
		Err:  fmt.Errorf("a limit of %d processes is below the minimum of %d: the guest's own threads count too", n, minPIDs),
		Hint: "raise the limit (--pids), or limit the processes of each command (--ulimit nproc=N)",
	}
}
