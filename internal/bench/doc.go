// Package bench is `muster bench`: it plays many machines that enroll, and says
// how fast they get through and what serving them costs.
//
// # How it measures
//
// What is measured is a process of its own, `muster provisioner run` as on a
// real machine, with its log in a file and every acknowledged write synced. The
// nodes are played by driver processes, over real sockets, and speak the real
// protocol. All are on one machine, so whatever the drivers use is taken from
// what is measured: keys, certificate requests and sealed requests are made
// before the clock starts, the drivers speak NATS with as little work as they
// can (see [conn]), and certificates are verified, every one, after the clock
// has stopped. What is left is said beside the result. Digests are checked and
// confirmations signed by the clock, as nodes do.
//
// CPU is that between the start of the clock and the last node that got
// through, of all serving and of all driver processes, from the kernel's
// accounting.
package bench
