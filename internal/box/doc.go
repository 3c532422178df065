// Package box has the life of a sandbox, which is the same for each provider: which sandboxes are open, and what runs
// beside them.
//
// It starts the services of a sandbox in the order of their dependencies, and waits until they are ready. A StartHost
// starts the containers of a service and observes them.
//
// It manages the guests in a service. These are the main process, if it is a guest, and one more for each other user. It
// starts guests, replaces those that die, and finds those that outlive this process. When a guest is lost, it determines
// from evidence whether code in the sandbox caused it. A GuestHost connects it to processes of the service.
//
// It passes connections and datagrams that arrive at ports of this machine on to ports of a sandbox. A guest connects to
// them from inside the sandbox, which needs no network for that.
package box
