//go:build !linux

package guest

import (
	"io"
	"os"
)

// The guest runs in Linux containers. On other systems it only has to compile.

func idle() {}

// Worker reports that there are no workers on this system.
func Worker([]string) (code int, is bool) { return 0, false }

func serve(string, []int, *os.File, *os.File, *os.File) int { return 2 }

func keepCapabilities([]string) error { return nil }

func setUp(string, *os.File, *os.File, *os.File) int { return 2 }

func enter(string, *os.File) int { return 2 }

func own(*os.File, *os.File) int { return 2 }

func supervise(*os.File, *os.File) int { return 2 }

func runLaunched() int { return 2 }

func relay(string, *os.File, *os.File, *os.File) int { return 2 }

func selfTest([]string, io.Writer) int { return 2 }

func become([]string, io.Writer) int { return 0 }

func install([]string, io.Writer) int { return 2 }

func awaitHost(*os.File) {}
