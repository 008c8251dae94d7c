// Package bench is `muster bench`: it simulates nodes that enroll, and measures their rate and what serving them
// costs.
//
// The serving process is `muster provisioner run` as on a real machine, with its log in a file and every write
// synced. The nodes run in this process, over real sockets, with the real protocol. Since they share the machine,
// keys, certificate requests and sealed requests are made before the clock starts, nodes speak NATS with little work
// (see [conn]), and replies are verified after it has stopped. Confirmations are signed meanwhile, as nodes do.
//
// CPU is the kernel's account of the processes from the start of the clock to the last node's end.
package bench
