package compose

// Labels that Compose sets on containers. A test in internal/docker/composesdk compares them with those of the SDK.
const (
	ProjectLabel     = "com.docker.compose.project" // the project's name, on all of its objects
	ServiceLabel     = "com.docker.compose.service"
	NumberLabel      = "com.docker.compose.container-number" // number of the container in its service, from 1
	OneoffLabel      = "com.docker.compose.oneoff"           // "True" on containers of `docker compose run`
	VersionLabel     = "com.docker.compose.version"          // version of the SDK
	WorkingDirLabel  = "com.docker.compose.project.working_dir"
	ConfigFilesLabel = "com.docker.compose.project.config_files"
	HashLabel        = "com.docker.compose.config-hash"
	ImageLabel       = "com.docker.compose.image" // the ID of the container's image

	DependenciesLabel = "com.docker.compose.depends_on"
)
