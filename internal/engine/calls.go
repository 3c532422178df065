package engine

import "time"

// call is what is known of one call of the Engine's API.
type call struct {
	name string // for people
	// silence is the longest time without a sign of life: until the answer, and then until each part of one that
	// streams. What a caller sends, or is slow to take, counts as life.
	silence time.Duration
	again   again
	// whole: the end of the caller's context keeps it from being made, and does not interrupt it.
	whole bool
	// prompt: the Engine answers from memory, so that how long it takes tells how busy it is.
	prompt bool
}

// again says after which failures a call is made again.
type again int

const (
	// never: it may have done by then what it does, and twice is not the same as once.
	never again = iota
	// torn: after a broken connection. It opens files of a container: a silence means that a program there may have put a pipe
	// in their place, and each such call more costs the Engine one more thread for good.
	torn
	// unclear: after a broken connection or a silence, when nobody knows whether it was done.
	unclear
	// failed: after an internal error of the Engine's too. Nothing that the caller gets wrong is one.
	failed
)

const (
	// answering is how long a call may take that the Engine answers from memory.
	answering = 30 * time.Second
	// working is how long one may take for which it changes something.
	working = time.Minute
	// fetching is how long a registry may be silent.
	fetching = 10 * time.Minute
	// building is how long a step of a build may be silent.
	building = 2 * time.Hour
)

// The calls. What is not among them is not called: a test sees to that.
var (
	callPing    = call{name: "ping", silence: pingTimeout, again: failed, prompt: true}
	callVersion = call{name: "version", silence: pingTimeout, again: failed}
	callInfo    = call{name: "info", silence: answering, again: failed}

	callEvents = call{name: "follow events", silence: pingTimeout, again: never} // Watch connects again

	callContainerList    = call{name: "list containers", silence: answering, again: failed, prompt: true}
	callContainerInspect = call{name: "inspect container", silence: answering, again: failed, prompt: true}
	callContainerCreate  = call{name: "create container", silence: working, again: failed, whole: true} // by name, see adopted
	callContainerStart   = call{name: "start container", silence: working, again: never}
	callContainerStop    = call{name: "stop container", silence: working, again: failed}
	callContainerPause   = call{name: "pause container", silence: working, again: never}     // the second time it would be somebody else's
	callContainerUnpause = call{name: "unpause container", silence: working, again: unclear} // one that is not paused is an internal error
	callContainerRemove  = call{name: "remove container", silence: working, again: failed}
	callContainerTop     = call{name: "list the processes of container", silence: answering, again: unclear} // none is an internal error
	callContainerLogs    = call{name: "read the log of container", silence: answering, again: failed}
	callContainerAttach  = call{name: "attach to container", silence: answering, again: never}
	callContainerStat    = call{name: "look at a file in container", silence: answering, again: torn} // odd paths are internal errors
	callCopyFrom         = call{name: "copy from container", silence: working, again: torn}
	callCopyTo           = call{name: "copy to container", silence: working, again: never}

	// Nothing runs of an exec that is never started; it goes with its container.
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

	callNetworkList       = call{name: "list networks", silence: answering, again: failed, prompt: true}
	callNetworkInspect    = call{name: "inspect network", silence: answering, again: failed, prompt: true}
	callNetworkCreate     = call{name: "create network", silence: working, again: failed, whole: true} // by name, see adopted
	callNetworkRemove     = call{name: "remove network", silence: working, again: failed}
	callNetworkConnect    = call{name: "connect to network", silence: working, again: never}
	callNetworkDisconnect = call{name: "disconnect from network", silence: working, again: never}

	callVolumeList    = call{name: "list volumes", silence: answering, again: failed, prompt: true}
	callVolumeInspect = call{name: "inspect volume", silence: answering, again: failed, prompt: true}
	callVolumeCreate  = call{name: "create volume", silence: working, again: failed, whole: true} // one that is there is that one
	callVolumeRemove  = call{name: "remove volume", silence: working, again: failed}
)

// attempts is how often a call is made at most.
const attempts = 3

// The most that the second and the third attempt may be silent.
const (
	secondSilence = 60 * time.Second
	thirdSilence  = 30 * time.Second
)

// patience is how long the nth attempt, from 1 on, may be silent where the caller waits for left; 0 means that it
// waits as long as it takes. One that another may follow gets half of what is left, so that there is time for that.
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

// pause is how long to wait after the nth attempt, give or take a half.
func pause(n int) time.Duration { return 250 * time.Millisecond << (2 * (n - 1)) }
