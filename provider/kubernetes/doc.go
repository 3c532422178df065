// Package kubernetes is the provider that runs each sandbox as a Pod of a Kubernetes cluster, version 1.31 or newer. It
// needs no rights beyond one namespace (Rights), and no program in the image.
//
//	func main() {
//		kubernetes.RunReaper() // first: this process may be a reaper
//		p, err := kubernetes.New(ctx, kubernetes.Options{GuestImage: "registry.example.org/fumehood-guest:1"})
//		...
//		defer p.Close(ctx)
//		sb, err := p.Start(ctx, fumehood.Spec{Image: "python:3.12-slim"})
//		...
//	}
//
// The guest comes from an image that the cluster can pull: PushGuestImage and WriteGuestImage make it. An init container
// copies the guest to a volume, and shuts down the Pod's network interfaces, so that no sandbox depends on the cluster's
// network policies. The Pod's main process is the guest. This process attaches to it once, and then reaches it by one
// exec stream, on which all commands and files go.
package kubernetes
