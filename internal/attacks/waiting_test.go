package attacks_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
// from another address, with another token, is listed, approved and enrolled. An alarm says that a share is used up.
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
	tg.p.waitFor("code=pending_full")
	if !strings.Contains(tg.p.output(), "left_out=") {
		t.Error("the log does not say what it left out")
	}
	tg.must("node", "forget", "--token-id", stolenID, "--all", "--yes", "--why", "a stolen token")
	if _, counts := tg.shares(); counts[stolenID] != 0 {
		t.Errorf("%d keys of the stolen token are still on the list", counts[stolenID])
	}
}

// silences are connections that ask nothing of the operators' port, or nothing that needs a credential.
var silences = map[string]func(net.Conn) error{
	"no byte":             func(net.Conn) error { return nil },
	"half a TLS record":   func(c net.Conn) error { _, err := c.Write([]byte{22, 3, 1, 0}); return err },
	"a handshake":         func(c net.Conn) error { return overTLS(c, "http/1.1", "") },
	"half a request":      func(c net.Conn) error { return overTLS(c, "http/1.1", "GET /v1/nodes HTTP/1.1\r\nHost: ") },
	"an idle HTTP/2 peer": func(c net.Conn) error { return overTLS(c, "h2", http2Preface) },
	"a health check, kept alive": func(c net.Conn) error {
		return overTLS(c, "http/1.1", "GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
	},
	"a refused login, kept alive": func(c net.Conn) error {
		return overTLS(c, "http/1.1", "GET /v1/nodes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n")
	},
}

// http2Preface is the client's part of the connection preface, with empty settings (RFC 9113 section 3.4).
const http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

func overTLS(c net.Conn, protocol, text string) error {
	secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}})
	if err := secure.Handshake(); err != nil {
		return err
	}
	_, err := secure.Write([]byte(text))
	return err
}

// TestSilentConnectionsKeepNoOperatorOut takes every place of the operators' port from eight addresses. An operator on
// an old connection and one on a new connection are both served.
func TestSilentConnectionsKeepNoOperatorOut(t *testing.T) {
	t.Parallel()
	tg := newTarget(t)
	tg.must("operator", "add", "ann", "--role", "admin", "--certificate", "--out", "ann.pem", "--why", "test")
	text, err := os.ReadFile(filepath.Join(tg.dir, "ann.pem"))
	if err != nil {
		t.Fatal(err)
	}
	login, err := httpapi.ParseCredential(text)
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int32
	old := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: login.Roots, Certificates: []tls.Certificate{*login.Certificate}},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	t.Cleanup(old.CloseIdleConnections)
	ask := func() {
		t.Helper()
		r, err := old.Get("https://" + tg.api + "/v1/nodes")
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("the operator gets %s", r.Status)
		}
	}
	ask()
	var held []net.Conn
	t.Cleanup(func() {
		for _, c := range held {
			_ = c.Close()
		}
	})
	for name, silence := range silences {
		for i := range 600 {
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 4, byte(1+i%8))}}
			c, err := dialer.DialContext(within(t), "tcp", tg.api)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, c)
			_ = c.SetDeadline(time.Now().Add(patience))
			if err := silence(c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		begun := time.Now()
		tg.must("status", "--url", "https://"+tg.api, "--login", "ann.pem")
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("%s: the operator on a new connection waits %v", name, took)
		}
		ask()
		if dials.Load() != 1 {
			t.Errorf("%s: the operator's connection was ended", name)
		}
	}
}
