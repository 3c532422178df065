package compose

// The labels that Compose puts on containers. A test of the SDK's compares them with its own.
const (
	ProjectLabel     = "com.docker.compose.project" // on all objects of a project: its name
	ServiceLabel     = "com.docker.compose.service"
	NumberLabel      = "com.docker.compose.container-number" // from 1 on, among those of a service
	OneoffLabel      = "com.docker.compose.oneoff"           // "True" on what `docker compose run` has made
	VersionLabel     = "com.docker.compose.version"          // of the SDK
	WorkingDirLabel  = "com.docker.compose.project.working_dir"
	ConfigFilesLabel = "com.docker.compose.project.config_files"
)
