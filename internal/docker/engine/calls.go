package engine

import "time"

// call describes one call of the Engine's API.
type call struct {
	name string // for messages
	// silence is the longest time to wait for the answer, and then for each part of an answer that streams. Time in
	// which the caller sends data, or is slow to read, does not count.
	silence time.Duration
	again   again
	// whole: a canceled context prevents the call, but does not interrupt it.
	whole bool
	// prompt: the Engine answers from memory, so the call's duration shows how busy the Engine is.
	prompt bool
}

// again is the kind of failure after which a call is retried.
type again int

const (
	// never: the call may already have had its effect, and must not have it twice.
	never again = iota
	// torn: after a broken connection. The call opens files of a container. A timeout may mean that a program there
	// has replaced a file by a pipe, and then each retry costs the Engine one more thread permanently.
	torn
	// unclear: after a broken connection or a timeout, when the effect is unknown.
	unclear
	// failed: also after an internal error of the Engine. Only for calls where the caller's mistakes are other errors.
	failed
)

const (
	// answering is the limit for calls that the Engine answers from memory.
	answering = 30 * time.Second
	// working is the limit for calls that change something.
	working = time.Minute
	// fetching is how long a registry may be silent.
	fetching = 10 * time.Minute
	// building is how long a build step may be silent.
	building = 2 * time.Hour
)

// The calls. No others are made; a test checks that.
var (
	callPing    = call{name: "ping", silence: pingTimeout, again: failed, prompt: true}
	callVersion = call{name: "version", silence: pingTimeout, again: failed}
	callInfo    = call{name: "info", silence: answering, again: failed}

	callEvents = call{name: "follow events", silence: pingTimeout, again: never} // Watch reconnects

	callContainerList    = call{name: "list containers", silence: answering, again: failed, prompt: true}
	callContainerInspect = call{name: "inspect container", silence: answering, again: failed, prompt: true}
	// callContainerCreate is retried by name, see createOrAdopt.
	callContainerCreate = call{name: "create container", silence: working, again: failed, whole: true}
	callContainerStart  = call{name: "start container", silence: working, again: never}
	callContainerStop   = call{name: "stop container", silence: working, again: failed}
	// callContainerPause is not retried: the container would seem to be paused by someone else.
	callContainerPause = call{name: "pause container", silence: working, again: never}
	// callContainerUnpause is not retried after an internal error: the Engine reports one if the container is not paused.
	callContainerUnpause = call{name: "unpause container", silence: working, again: unclear}
	callContainerRemove  = call{name: "remove container", silence: working, again: failed}
	// callContainerTop is not retried after an internal error: the Engine reports one if the container has no processes.
	callContainerTop    = call{name: "list the processes of container", silence: answering, again: unclear}
	callContainerLogs   = call{name: "read the log of container", silence: answering, again: failed}
	callContainerStats  = call{name: "read the counters of container", silence: answering, again: failed}
	callContainerAttach = call{name: "attach to container", silence: answering, again: never}
	// callContainerStat is not retried after an internal error: the Engine reports one for odd paths.
	callContainerStat = call{name: "look at a file in container", silence: answering, again: torn}
	callCopyFrom      = call{name: "copy from container", silence: working, again: torn}
	callCopyTo        = call{name: "copy to container", silence: working, again: never}

	// callExecCreate may be repeated: an exec that is never started runs nothing, and is removed with its container.
	callExecCreate  = call{name: "create exec in container", silence: answering, again: torn}
	callExecInspect = call{name: "inspect exec", silence: answering, again: failed}
	callExecResize  = call{name: "resize terminal of exec", silence: answering, again: unclear}
	callExecAttach  = call{name: "start exec", silence: working, again: never}

	callImageInspect = call{name: "inspect image", silence: answering, again: failed}
	callImageList    = call{name: "list images", silence: answering, again: failed}
	callImagePull    = call{name: "pull image", silence: fetching, again: unclear}
	callImageImport  = call{name: "import image", silence: working, again: never}
	callImageBuild   = call{name: "build image", silence: building, again: never}
	callImageTag     = call{name: "tag image", silence: answering, again: failed}
	callImageRemove  = call{name: "remove image", silence: working, again: failed}
	callSession      = call{name: "open a build's session", silence: answering, again: never}

	callNetworkList    = call{name: "list networks", silence: answering, again: failed, prompt: true}
	callNetworkInspect = call{name: "inspect network", silence: answering, again: failed, prompt: true}
	// callNetworkCreate is retried by name, see createOrAdopt.
	callNetworkCreate     = call{name: "create network", silence: working, again: failed, whole: true}
	callNetworkRemove     = call{name: "remove network", silence: working, again: failed}
	callNetworkConnect    = call{name: "connect to network", silence: working, again: never}
	callNetworkDisconnect = call{name: "disconnect from network", silence: working, again: never}

	callVolumeList    = call{name: "list volumes", silence: answering, again: failed, prompt: true}
	callVolumeInspect = call{name: "inspect volume", silence: answering, again: failed, prompt: true}
	// callVolumeCreate is retried: the Engine returns an existing volume of that name.
	callVolumeCreate = call{name: "create volume", silence: working, again: failed, whole: true}
	callVolumeRemove = call{name: "remove volume", silence: working, again: failed}
)

// attempts is the maximum number of attempts of a call.
const attempts = 3

// The longest silence of the second and the third attempt.
const (
	secondSilence = 60 * time.Second
	thirdSilence  = 30 * time.Second
)

// patience returns how long the nth attempt, counted from 1, may be silent. left is the time that the caller still
// waits; 0 means no limit. An attempt that can be retried gets half of left, so that time for the retry remains.
func (c call) patience(n int, left time.Duration, speedup Speedup) time.Duration {
	most := c.silence
	switch n {
	case 2:
		most = min(most, secondSilence)
	case 3:
		most = min(most, thirdSilence)
	}
	most = speedup.Of(most)
	if left > 0 && c.again != never && n < attempts {
		most = min(most, left/2)
	}
	return most
}

// pause returns how long to wait after the nth attempt, plus or minus a half.
func pause(n int) time.Duration { return 250 * time.Millisecond << (2 * (n - 1)) }
