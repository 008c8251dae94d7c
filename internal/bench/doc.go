// Package bench is `muster bench`: it simulates machines that enroll, and measures how fast they get through and
// what serving them costs.
//
// # How it measures
//
// The serving process is `muster provisioner run` as on a real machine: its log goes to a file and every
// acknowledged write is synced. The nodes run in this process, over real sockets, and speak the real protocol.
// Both share one machine, so whatever the nodes use is taken from what is measured. Keys, certificate requests and
// sealed requests are therefore made before the clock starts, nodes with a connection of their own speak NATS with as
// little work as possible (see [conn]), and replies are decoded and certificates verified, every one, after the clock has stopped.
// Confirmations are signed while it runs, as nodes do.
//
// CPU is the kernel's account of the serving processes and of this one, from the start of the clock to the last
// node that got through.
package bench
