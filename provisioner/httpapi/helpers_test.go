package httpapi_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
)

// requestOver asks for a node over a connection that is there already.
func requestOver(f *testbed.Fleet, nc *nats.Conn, n *simnode.Node) (*wire.Reply, error) {
	return simnode.Enroll(f.Context(), nc, n.Request())
}

// dirFD opens a directory until the test ends and returns its descriptor.
func dirFD(t *testing.T, path string) string {
	t.Helper()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dir.Close() })
	return strconv.FormatUint(uint64(dir.Fd()), 10)
}
