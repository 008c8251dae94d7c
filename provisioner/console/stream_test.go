package console_test

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/provisioner/trust"
)

// live opens the stream of changes until the test ends.
func (v *visitor) live() *http.Response {
	v.t.Helper()
	resp, err := v.http.Do(v.request(http.MethodGet, "/live", nil))
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = resp.Body.Close() })
	if form := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || form != "text/event-stream" {
		v.t.Fatalf("%s, %s", resp.Status, form)
	}
	return resp
}

// A stream tells of a change, and ends with the operator.
func TestTheStreamTellsChanges(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := signedIn(t, f, "vera", trust.RoleViewer)
	resp := v.live()
	lines := bufio.NewScanner(resp.Body)
	told := func() bool {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				return true
			}
		}
		return false
	}
	if !lines.Scan() || lines.Text() != ":" {
		t.Fatalf("the stream begins with %q", lines.Text())
	}
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	if !told() {
		t.Fatalf("a change is not told: %v", lines.Err())
	}
	if err := f.Daemon().Orders().Operators.Remove(f.Context(), "vera", testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("the stream of a removed operator ends with %v", err)
	}
	if a := v.get("/live"); a.status != http.StatusSeeOther {
		t.Errorf("a removed operator gets %d", a.status)
	}
}

// An open stream does not hold up the provisioner's end.
func TestTheEndEndsStreams(t *testing.T) {
	t.Parallel()
	f := served(t)
	v := signedIn(t, f, "vera", trust.RoleViewer)
	resp := v.live()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		ended <- err
	}()
	f.Stop()
	if err := <-ended; err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
}
