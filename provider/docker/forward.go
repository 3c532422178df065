package docker

// forwards are the ports of a service that this process forwards connections to.
type forwards struct{}

func (f *forwards) close() {}
