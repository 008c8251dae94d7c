// Package fleet answers what operators ask about many nodes, or about the past of
// one, from an index in memory and from the store.
//
// # How far it is trusted
//
// The index follows the records, so every provisioner sees the same within a
// second, and nothing is decided by it: whoever changes a node reads its record. It
// may lag behind a store that does not answer. What its own process writes is handed
// to it once it is acknowledged; everything else it reads from the stream.
//
// # What it costs
//
// About 160 bytes a node, in a few large pieces without pointers, since the garbage
// collector looks at pointers again and again: 100,000 nodes are 16 MB (measured,
// BenchmarkIndex). The facts that are kept of a node are one text that nodes share: 5
// bytes a node with six facts in 4,000 combinations, and 120 more with one that differs
// with each node, as a serial number does (BenchmarkIndexFacts). A page is one look at
// all nodes, which keeps no order up to date that nobody asks for.
package fleet
