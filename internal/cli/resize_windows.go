package cli

// onResize does nothing: Windows has no signal for resizing.
func onResize(func()) (stop func()) { return func() {} }
