package httpapi_test

import (
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// routes is a server that knows its routes, and serves none.
var routes = sync.OnceValue(func() *httpapi.Server {
	s, err := httpapi.New(httpapi.Config{
		Socket:      "none",
		Provisioner: &provisioner.Provisioner{},
		Orders:      &operate.Orders{},
	})
	if err != nil {
		panic(err)
	}
	return s
})

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
