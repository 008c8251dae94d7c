package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/provisioner/httpapi"
)

// TestRefusalsSayWhatToDo asks for what there is not, and sends too much.
func TestRefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	for _, what := range [][2]string{{http.MethodGet, "/v1/node"}, {http.MethodDelete, "/v1/nodes/web1.example.net"}} {
		if p := refused(t, f, what[0], what[1], nil); !strings.Contains(p.Detail, what[0]+" "+what[1]) || !strings.Contains(p.Remedy, "/openapi.json") {
			t.Errorf("%s %s: %q, to do: %q", what[0], what[1], p.Detail, p.Remedy)
		}
	}
	if p := refused(t, f, http.MethodPost, "/v1/clock/accept", httpapi.Reason{Why: strings.Repeat("x", 1<<20)}); p.Status != http.StatusBadRequest || !strings.Contains(p.Detail, "limit 65536 bytes") {
		t.Errorf("a body of 1 MiB: %d %q", p.Status, p.Detail)
	}
}
