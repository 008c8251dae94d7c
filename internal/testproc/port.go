package testproc

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// results of FreePort
var ports sync.Map

// FreePort returns an unused port of 127.0.0.1, never the same one twice, for a process that restarts on it. It avoids
// the kernel's ephemeral ports (on Linux from 32,768), which other processes could take meanwhile.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000)) //nolint:gosec // nothing is hidden
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue // another process has it
		}
		_ = l.Close() // nothing has connected
		if _, given := ports.LoadOrStore(port, true); !given {
			return port
		}
	}
	t.Fatal("no port of 127.0.0.1 is free")
	return ""
}
