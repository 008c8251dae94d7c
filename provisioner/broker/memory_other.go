//go:build !linux

package broker

// sharedMemory is nowhere: provisioners run on Linux, and elsewhere batches are staged in StoreDir.
const sharedMemory = ""

func hasMemory() bool { return false }
