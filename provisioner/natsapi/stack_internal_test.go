package natsapi

import (
	"runtime"
	"testing"
	"unsafe"
)

// deeper takes some 1 KiB of stack for each level, and returns at the deepest.
//
//go:noinline
func deeper(levels int) byte {
	var frame [1 << 10]byte
	frame[levels%len(frame)] = byte(levels)
	if levels > 0 {
		frame[0] += deeper(levels - 1)
	}
	return frame[0]
}

func TestAWorkersStackDoesNotShrink(t *testing.T) {
	t.Parallel()
	place := func(p *byte) uintptr { return uintptr(unsafe.Pointer(p)) }
	waits, collected, moved := make(chan struct{}), make(chan struct{}), make(chan bool)
	go withStack(func() {
		var held byte
		deeper(24)
		before := place(&held)
		close(waits)
		<-collected
		moved <- place(&held) != before
	})
	<-waits
	for range 4 { // a stack is halved once in a collection
		runtime.GC()
	}
	close(collected)
	if <-moved {
		t.Error("the stack was made smaller while its worker waited")
	}
}
