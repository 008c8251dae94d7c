package natsapi

import "runtime"

// stackRoom is a quarter of 64 KiB, which the stack of a worker grows to with it:
// deciding takes less than the rest, with a policy of 30 lines (measured).
const stackRoom = 16 << 10

// withStack calls work on a stack that keeps the size to which work has it grow,
// up to 64 KiB.
//
// A collection of garbage halves each stack of which less than a quarter is in
// use, as that of a worker is while it waits for the disk; growing again copies
// all of it, which was 20 µs a node where every node has a connection of its own
// (measured). So this frame takes the quarter. 256 workers hold 16 MiB that way.
//
//go:noinline
func withStack(work func()) {
	var room [stackRoom]byte
	work()
	runtime.KeepAlive(&room)
}
