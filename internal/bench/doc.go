// Package bench is `muster bench`: it simulates nodes that enroll, and measures their rate and what serving them
// costs.
//
// The serving process is `muster provisioner run`, with its log in a file and every write synced. The nodes run in
// this process, over real sockets, with a cheap NATS client (see [conn]). Since both share the machine, keys and
// requests are made before the clock runs, and certificates are verified after. Signatures are checked while it runs.
//
// Choria servers are simulated too. These nodes can also be played against a provisioner that already runs.
package bench
