package choria_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
)

// Each holder of a token reads the requests to all servers at a broker of Choria's.
func TestTokenHolderHearsAndSaysNothingOfOthers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	thief, err := connect(f, "web2.example.net")
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	var mu sync.Mutex
	var heard, refused []string // guarded by mu
	thief.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		mu.Lock()
		defer mu.Unlock()
		refused = append(refused, strings.ToLower(err.Error()))
	})
	hears := []string{
		"provisioning.node." + web1, "provisioning.node.*", "provisioning.node.>", "provisioning.reply.>",
		"provisioning.registration.data", "choria.lifecycle.>", "muster.>", "$JS.API.>", "$SYS.>", "_INBOX.>", "*.*.>", ">",
	}
	for _, subject := range hears {
		if _, err := thief.Subscribe(subject, func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			heard = append(heard, m.Subject)
		}); err != nil {
			t.Fatal(err)
		}
	}
	says := []string{
		"provisioning.node." + web1, "provisioning.node.web2.example.net", "provisioning.broadcast.agent.choria_provision",
		"provisioning.reply.web1_example_net.a.b", "muster.v1.enroll", "muster.node.web1_example_net", "$JS.API.INFO",
	}
	for _, subject := range says {
		if err := thief.Publish(subject, []byte("garbage")); err != nil {
			t.Fatal(err)
		}
	}
	start(t, f, web1, nil).provisioned()
	f.Eventually("each subject is refused", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, subject := range slices.Concat(hears, says) {
			if !slices.ContainsFunc(refused, func(text string) bool {
				return strings.Contains(text, `"`+strings.ToLower(subject)+`"`)
			}) {
				return false
			}
		}
		return true
	})
	mu.Lock()
	defer mu.Unlock()
	if len(heard) > 0 {
		t.Errorf("the holder of the token heard %q", heard)
	}
	f.Check()
}
