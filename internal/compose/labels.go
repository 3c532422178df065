package compose

import "github.com/docker/compose/v5/pkg/api"

// The labels that the SDK puts on containers.
const (
	ServiceLabel = api.ServiceLabel
	NumberLabel  = api.ContainerNumberLabel // from 1 on, among those of a service
	OneoffLabel  = api.OneoffLabel          // "True" on what `docker compose run` has made
)
