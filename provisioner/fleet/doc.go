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
// About 180 bytes a node: 18 MB for 100,000. A node has one pointer, to its name, since the garbage collector looks at
// pointers again and again; what nodes share is numbered. The facts that are kept of a node are one text: 120 bytes more
// a node if one of them differs with each node, as a serial number does. A page is one look at all nodes.
package fleet
