// Package box has the life of a sandbox, which is the same for each provider with guests. A provider is a Driver, whose
// sandboxes are Bodies. Life starts them, finds kept ones again, and closes them. Beside them it runs a reaper and a sweep.
//
// The services of a sandbox start in the order of their dependencies. A Unit is a container of a service, or what takes
// its place.
//
// Guests manages the guests in a service. These are the main process, if it is a guest, and one more for each other user.
// It starts guests, replaces those that die, and finds those that outlive this process. When a guest is lost, it determines
// from evidence whether code in the sandbox caused it.
//
// Ports passes connections and datagrams that arrive at ports of this machine on to ports of a sandbox. A guest connects to
// them from inside the sandbox, which needs no network for that.
package box
