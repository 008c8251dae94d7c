package natsapi

import "runtime"

// stackRoom is a quarter of the 64 KiB that a worker's stack grows to (measured)
const stackRoom = 16 << 10

// withStack calls work on a stack that does not shrink below 64 KiB. The garbage collector halves a stack if less than
// a quarter is in use; growing it again cost 20 µs a node (measured). So this frame takes a quarter. The stacks of 256
// workers take 16 MiB.
//
//go:noinline
func withStack(work func()) {
	var room [stackRoom]byte
	work()
	runtime.KeepAlive(&room)
}
