package docker

import (
	"errors"
	"fmt"

	"github.com/fumehood/fumehood"
	"github.com/fumehood/fumehood/internal/compose"
)

var errNoForwards = errors.New("ports of internal networks need the guest, which this transport does not use")

// checkForwards rejects ports that cannot be forwarded, before anything is created.
func (sb *sandbox) checkForwards(services []compose.Service) error {
	for _, s := range services {
		if len(s.Forward) > 0 && sb.direct() {
			return &fumehood.Error{
				Op: fmt.Sprintf("forward port %d", s.Forward[0].Container), Service: s.Name, Class: fumehood.ErrUnsupported,
				Err:  errNoForwards,
				Hint: "remove the port, or set x-fumehood: {egress: internet}",
			}
		}
	}
	return nil
}
