package main

import (
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestWebhook has an endpoint be away while a machine is refused and the
// provisioner killed, and finds the refusal delivered by the next one, under the
// id that it had.
func TestWebhook(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir := t.TempDir()
	port := freePort(t)
	var back atomic.Bool
	ids := make(chan string, 1000)
	endpoint := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !strings.HasPrefix(r.Header.Get("webhook-signature"), "v1,") {
			t.Errorf("request: %v, %v", err, r.Header)
		}
		if strings.Contains(string(body), "attempt.refused") {
			ids <- r.Header.Get("webhook-id")
		}
		if !back.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(endpoint.Close)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--trust-first-use", "--listen", "127.0.0.1:"+port)
	write := func(name, text string) {
		f, err := os.OpenFile(filepath.Join(dir, "prov", name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write("ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: endpoint.Certificate().Raw})))
	write("pager.secret", "whsec_"+base64.StdEncoding.EncodeToString([]byte("twenty-four bytes, at least"))+"\n")
	write("provisioner.yaml", "\nwebhooks:\n  - {name: pager, url: '"+endpoint.URL+"/hush', secret: pager.secret, ca: ca.crt, events: [attempt], timeout: 1s}\n")
	config := []string{"--config", "prov/provisioner.yaml"}
	provisioner := start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	out, err := command(t, "webhook", "test", "pager", "--config", filepath.Join(dir, "prov/provisioner.yaml")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "503 Service Unavailable") || strings.Contains(string(out), "hush") {
		t.Errorf("test of an endpoint that refuses: %v: %s", err, out)
	}

	openssl(t, dir, "genpkey", "-algorithm", "ed25519", "-out", "other.pem")
	muster(t, dir, "jwt", "t.jwt", "other.pem", "--insecure", "--token", "toomanysecrets", "--urls", "localhost:"+port, "--default")
	node := start(t, dir, "server", "run", "--token-file", "t.jwt", "--ssl-dir", "web1", "--config", "web1/server.conf", "--identity", "web1.example.net")
	next := func() string {
		select {
		case id := <-ids:
			return id
		case <-time.After(2 * time.Minute):
			t.Fatalf("no attempt is delivered: %s", provisioner.output())
			return ""
		}
	}
	first := next()
	for next() != first { // it is on disk by now, as all is after a moment
	}
	for _, p := range []*process{node, provisioner} {
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.done
	}
	for len(ids) > 0 {
		<-ids
	}
	back.Store(true)
	provisioner = start(t, dir, append([]string{"provisioner", "run"}, config...)...)
	provisioner.waitFor("provisioner is serving")
	for next() != first {
	}
	if out := muster(t, dir, append([]string{"webhook", "test", "pager"}, config...)...); !strings.Contains(out, "200 OK") {
		t.Errorf("test of an endpoint that is back: %s", out)
	}
	if out := muster(t, dir, append([]string{"webhook", "list"}, config...)...); !strings.Contains(out, "pager    "+endpoint.URL) {
		t.Errorf("list: %s", out)
	}
	b, err := command(t, "webhook", "test", "page", "--config", filepath.Join(dir, "prov/provisioner.yaml")).CombinedOutput()
	if err == nil || !strings.Contains(string(b), `no such webhook in provisioner.yaml: "page"`) {
		t.Errorf("a webhook that is not there: %v: %s", err, b)
	}
}
