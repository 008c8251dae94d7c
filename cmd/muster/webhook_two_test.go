package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// A holder is an operator's endpoint that may keep whoever comes waiting.
type holder struct {
	*httptest.Server

	mu     sync.Mutex
	came   map[string]string // guarded by mu: the webhook-id under which an event came, by its own id
	taken  map[string]bool   // guarded by mu: events that were answered, likewise
	wrong  error             // guarded by mu: an event came under two webhook-ids, or two under one
	inHand int               // guarded by mu: requests that wait
	hold   chan struct{}     // guarded by mu: nil, or closed once those who came meanwhile are to be answered
}

func newHolder(t *testing.T) *holder {
	t.Helper()
	h := &holder{came: map[string]string{}, taken: map[string]bool{}}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e provisioner.StoredEvent
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		id := r.Header.Get("webhook-id")
		if err != nil || id == "" {
			t.Errorf("a request under the id %q: %s: %v", id, body, err)
		}
		h.comes(id, e.ID)
		if !h.wait(r.Context()) {
			panic(http.ErrAbortHandler) // killed, or it has given up waiting
		}
		h.take(e.ID)
	}))
	t.Cleanup(h.Close)
	return h
}

// wait waits while the endpoint holds, and reports whether anybody waits for its answer.
func (h *holder) wait(ctx context.Context) bool {
	h.mu.Lock()
	hold := h.hold
	if hold != nil {
		h.inHand++
	}
	h.mu.Unlock()
	if hold == nil {
		return true
	}
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.inHand--
	}()
	select {
	case <-hold:
		return true
	case <-ctx.Done():
		return false
	}
}

// comes takes in under which webhook-id an event comes: the same each time, from
// whichever provisioner, so that who has answered once can tell.
func (h *holder) comes(id, event string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, ok := h.came[event]; ok && before != id {
		h.wrong = fmt.Errorf("event %s came under %s and then under %s", event, before, id)
	}
	h.came[event] = id
	for other, its := range h.came {
		if its == id && other != event {
			h.wrong = fmt.Errorf("events %s and %s came under %s", other, event, id)
		}
	}
}

func (h *holder) take(event string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.taken[event] = true
}

// begin keeps all waiting who come from now on, until the function it returns is called.
func (h *holder) begin() (end func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hold := make(chan struct{})
	h.hold = hold
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.hold = nil
		close(hold)
	}
}

// waiting is how many requests wait.
func (h *holder) waiting() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.inHand
}

// events returns the events that were answered. The error is of webhook-ids.
func (h *holder) events() (map[string]bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.taken), h.wrong
}

// TestWebhooksOfTwoProvisioners has two provisioners on a cluster of three servers with
// the same webhook: whichever of them delivers, each event reaches the endpoint at
// least once and under one id. One is killed with SIGKILL while both have events in
// hand: those, and what comes then, are delivered by the other one.
func TestWebhooksOfTwoProvisioners(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	const (
		timeout = 5 * time.Second
		atOnce  = 4 // that one process delivers at a time, of events such as these; see package webhook
		each    = 15
	)
	endpoint, files := newHolder(t), t.TempDir()
	ca, secret := filepath.Join(files, "ca.pem"), filepath.Join(files, "secret")
	write(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: endpoint.Certificate().Raw})))
	write(t, secret, "whsec_"+base64.StdEncoding.EncodeToString([]byte("twenty-four bytes, at least"))+"\n")
	f := testbed.New(t, testbed.Options{Servers: 3, Edit: func(c *daemon.Config) {
		c.Webhooks = []daemon.WebhookConfig{{Name: "pager", URL: endpoint.URL, Secret: secret, CA: ca, Events: []string{"node.enrolled", "node.provisioned"}, Timeout: timeout}}
	}})
	config := strings.NewReplacer("name: broker.fleet.test", "name: second.fleet.test", "data_dir: data", "data_dir: data-2").Replace(f.Read("provisioner.yaml"))
	f.Write("second.yaml", config+fmt.Sprintf("\nwebhooks:\n  - {name: pager, url: '%s', secret: %s, ca: %s, events: [node.enrolled, node.provisioned], timeout: %v}\n", endpoint.URL, secret, ca, timeout))
	second := start(t, f.Dir, "provisioner", "run", "--config", "second.yaml")
	second.waitFor("provisioner is serving")

	w := &wave{url: f.URL(), token: f.Token(f.Seal), told: map[string]string{}, enrolled: make(chan struct{}, 10_000)}
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	nodes := 0
	enroll := func() {
		var all sync.WaitGroup
		for range each {
			nodes++
			identity := fmt.Sprintf("web%d.example.net", nodes)
			all.Go(func() { w.node(ctx, t, identity) })
		}
		all.Wait()
	}
	delivered := func(dir string) uint64 {
		var all []provisioner.Webhook
		if err := httpapi.NewClient(filepath.Join(f.Dir, dir, httpapi.SocketName)).Do(ctx, http.MethodGet, "/v1/webhooks", nil, &all); err != nil || len(all) != 1 {
			t.Fatalf("webhooks of %s: %+v, %v", dir, all, err)
		}
		return all[0].Delivered
	}
	// What comes before the webhook has its place is not its. Both take their share.
	for delivered("data") == 0 || delivered("data-2") == 0 {
		enroll()
	}
	first := nodes

	release := endpoint.begin()
	enroll()
	f.Eventually("both provisioners have events in hand", func() bool { return endpoint.waiting() > atOnce })
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-second.done
	f.Eventually("those of the killed one are broken off", func() bool { return endpoint.waiting() <= atOnce })
	release()
	before := delivered("data")
	enroll()

	log := f.Daemon().Store()
	f.Eventually("every event of the log is delivered, under an id of its own", func() bool {
		taken, err := endpoint.events()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]int{}
		missing := 0
		err = log.Events(ctx, provisioner.EventQuery{After: &provisioner.Place{}, Type: "io.muster.node.", Once: true}, func(e *provisioner.StoredEvent) error {
			var number int
			if _, err := fmt.Sscanf(e.Subject, "web%d.", &number); err != nil || number <= first || e.Type != provisioner.EventEnrolled && e.Type != provisioner.EventProvisioned {
				return err
			}
			if found[e.Subject]++; !taken[e.ID] {
				missing++
			}
			return nil
		})
		return err == nil && missing == 0 && len(found) == nodes-first
	})
	if after := delivered("data"); after < before+each {
		t.Errorf("the one that is left has delivered %d events since, of %d nodes", after-before, each)
	}
}
