package testproc

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// ports are those that FreePort has returned.
var ports sync.Map

// FreePort returns a port of 127.0.0.1 that nobody uses, and never the same one twice, for a
// process that is to come back on it when it is started again. It is none of those that the
// kernel hands out to who connects and to who listens at any (on Linux from 32,768): it would
// be somebody else's in between, on a machine where many do.
func FreePort(t testing.TB) string {
	t.Helper()
	for range 1000 {
		port := strconv.Itoa(10_000 + rand.IntN(20_000)) //nolint:gosec // nothing is hidden
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
		if err != nil {
			continue // another process has it
		}
		_ = l.Close() // nobody has connected
		if _, given := ports.LoadOrStore(port, true); !given {
			return port
		}
	}
	t.Fatal("no port of 127.0.0.1 is free")
	return ""
}
