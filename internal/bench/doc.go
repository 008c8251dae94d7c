// Package bench is `muster bench`: it simulates nodes that enroll, and measures their rate and what serving them
// costs.
//
// The serving process is `muster provisioner run` as on a real machine, with its log in a file and every write synced.
// The nodes run in this process, over real sockets, with the real protocol. The nodes share the machine with that
// process, so they do little while the clock runs. Keys, certificate requests and sealed requests are made before;
// replies are verified after. Nodes use a cheap NATS client (see [conn]). They sign confirmations while the clock runs,
// as real nodes do.
//
// CPU is the CPU time of the processes, as the kernel counts it, until the last node ends.
package bench
