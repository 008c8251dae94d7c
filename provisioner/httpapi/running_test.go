package httpapi_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"muster/internal/testbed"
	"muster/internal/testproc"
	"muster/provisioner/httpapi"
)

// TestRunningProvisionerIsFound finds the socket of a provisioner whose configuration is at no default path, and not one
// that another user opened in its place.
func TestRunningProvisionerIsFound(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	f := testbed.New(t, testbed.Options{})
	forged := filepath.Join(f.Dir, httpapi.SocketName)
	l, err := net.Listen("unix", forged)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if err := os.Chown(forged, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	found := httpapi.RunningSockets()
	if !slices.Contains(found, filepath.Join(f.Dir, "data", httpapi.SocketName)) || slices.Contains(found, forged) {
		t.Errorf("found %q", found)
	}
}
