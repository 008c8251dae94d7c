package attacks_test

import (
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/httpapi"
)

// useDefaultPolicy replaces the policy by the default one: a new name waits for an approval.
func (tg *target) useDefaultPolicy() {
	tg.t.Helper()
	if err := os.RemoveAll(tg.path("policy")); err != nil {
		tg.t.Fatal(err)
	}
	for name, content := range policies.Builtin(false) {
		if err := os.MkdirAll(filepath.Dir(tg.path("policy/"+name)), 0o755); err != nil {
			tg.t.Fatal(err)
		}
		tg.write("policy/"+name, string(content))
	}
}

// from returns an option that dials from an address of this machine.
func from(address string) nats.Option {
	return nats.SetCustomDialer(&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}})
}

// A flood is the requests of one holder of a token for names that it makes up.
type flood struct {
	mu    sync.Mutex
	codes map[wire.Code]int
	told  []string // names that were answered by approval_pending
}

func (fl *flood) note(name string, r *wire.Reply) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	code := wire.Code("enrolled")
	if r.Refusal != nil {
		code = r.Refusal.Code
	}
	if fl.codes[code]++; code == wire.CodeApprovalPending {
		fl.told = append(fl.told, name)
	}
}

// run sends n requests over each connection, as many at a time as a connection may have subscriptions.
func (fl *flood) run(tg *target, n int, prefix, token string, conns ...*nats.Conn) {
	tg.t.Helper()
	fl.codes = make(map[wire.Code]int)
	ctx, anyName := within(tg.t), tg.node("", token)
	var err error
	anyName.CSR, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, anyName.Key)
	if err != nil {
		tg.t.Fatal(err)
	}
	const together = 6
	var senders errgroup.Group
	for c, nc := range conns {
		for first := range together {
			senders.Go(func() error {
				for i := first; i < n; i += together {
					r := anyName.Request()
					r.Identity = fmt.Sprintf("%s%d-%d.example.net", prefix, c, i)
					reply, err := simnode.Enroll(ctx, nc, r)
					if err != nil {
						return err
					}
					fl.note(r.Identity, reply)
				}
				return nil
			})
		}
	}
	if err := senders.Wait(); err != nil {
		tg.t.Fatal(err)
	}
}

// shares returns the names on the pending list, and the number of keys by address and by token.
func (tg *target) shares() (names map[string]bool, counts map[string]int) {
	tg.t.Helper()
	var pending httpapi.Pending
	tg.list(&pending, "node", "pending")
	names, counts = make(map[string]bool), make(map[string]int)
	for _, w := range pending.Waiting {
		names[string(w.Identity)] = true
		counts[w.Source]++
		counts[string(w.Token)]++
	}
	return names, counts
}

// TestFloodsHideNoPendingNode has holders of tokens ask for made-up names, from one address and from many. A node that
// is told to wait for an approval is on the list, each address and each token gets its share of the list, and a node
// from another address, with another token, is listed, approved and enrolled.
func TestFloodsHideNoPendingNode(t *testing.T) {
	t.Parallel()
	tg := install(t)
	tg.useDefaultPolicy()
	tg.start()
	stolen := tg.token(func(c *jwt.Claims) { c.Issuer = "stolen" })
	var many []*nats.Conn
	for i := range 20 {
		many = append(many, tg.dial(stolen, from(fmt.Sprintf("127.0.2.%d", i+1))))
	}
	one := tg.dial(stolen, from("127.0.1.1"))
	(&flood{}).run(tg, 1, "first", stolen, one)
	_, counts := tg.shares()
	delete(counts, "127.0.1.1")
	stolenID := slices.Collect(maps.Keys(counts))[0]
	for i, tt := range []struct {
		name   string
		attack func(fl *flood)
		full   map[string]int // shares that are used up afterwards
		token  string         // of an honest node
	}{
		{"one address", func(fl *flood) { fl.run(tg, 3000, "a", stolen, one) }, map[string]int{"127.0.1.1": 64}, stolen},
		{"the address again", func(fl *flood) { fl.run(tg, 500, "b", stolen, one) }, map[string]int{"127.0.1.1": 64},
			stolen},
		{"twenty addresses with one token", func(fl *flood) { fl.run(tg, 100, "c", stolen, many...) },
			map[string]int{"127.0.1.1": 64, stolenID: 1024}, tg.token(nil)},
		{"those addresses with another token", func(fl *flood) {
			fl.run(tg, 70, "d", tg.token(func(c *jwt.Claims) { c.Issuer = "another" }), many...)
		}, map[string]int{"127.0.2.1": 64, "127.0.2.20": 64, stolenID: 1024}, tg.token(nil)},
	} {
		fl, printed := &flood{}, len(tg.p.output())
		tt.attack(fl)
		honest := tg.node(fmt.Sprintf("web%d.example.net", i), tt.token)
		nc := tg.dial(tt.token, from(fmt.Sprintf("127.0.3.%d", i+1)))
		if r := tg.ask(nc, honest.Request()); r.Refusal == nil || r.Refusal.Code != wire.CodeApprovalPending {
			t.Fatalf("%s: the honest node gets %+v", tt.name, r)
		}
		listed, counts := tg.shares()
		for _, name := range append(fl.told, honest.Identity) {
			if !listed[name] {
				t.Errorf("%s: %s was told to wait for an approval, and is not on the list", tt.name, name)
			}
		}
		for share, want := range tt.full {
			if counts[share] != want {
				t.Errorf("%s: %d keys of %s, want %d", tt.name, counts[share], share, want)
			}
		}
		delete(fl.codes, wire.CodeApprovalPending)
		delete(fl.codes, wire.CodeBusy)
		if len(fl.codes) > 0 {
			t.Errorf("%s: answers are also %v", tt.name, fl.codes)
		}
		tg.must("node", "approve", honest.Identity, "--why", "test")
		if r := tg.ask(nc, honest.Request()); r.Enrolled == nil {
			t.Errorf("%s: the honest node is approved and gets %+v", tt.name, r.Refusal)
		}
		if n := len(tg.p.output()) - printed; n > 500_000 {
			t.Errorf("%s: the flood wrote %d bytes of log", tt.name, n)
		}
		t.Logf("%s: %d told to wait, %d listed, %d bytes of log", tt.name, len(fl.told), len(listed),
			len(tg.p.output())-printed)
	}
	if !strings.Contains(tg.p.output(), "left_out=") {
		t.Error("the log does not say what it left out")
	}
	tg.must("node", "forget", "--token-id", stolenID, "--all", "--yes", "--why", "a stolen token")
	if _, counts := tg.shares(); counts[stolenID] != 0 {
		t.Errorf("%d keys of the stolen token are still on the list", counts[stolenID])
	}
}
