package httpapi_test

import (
	"net/http"
	"os"
	"path"
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
	return httpapi.New(httpapi.Config{
		Socket: "none",
		Edge:   operate.Edge{Provisioner: &provisioner.Provisioner{}, Orders: &operate.Orders{}},
	})
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

// listed asks for a list: a member that is named as the path ends, and is never null.
func listed[A any](t *testing.T, f *testbed.Fleet, route string) []A {
	t.Helper()
	var answer map[string][]A
	call(t, f, http.MethodGet, route, nil, &answer)
	all := answer[path.Base(route)]
	if all == nil || len(answer) != 1 {
		t.Fatalf("GET %s: %v, want one member", route, answer)
	}
	return all
}
