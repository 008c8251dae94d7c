package server_test

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/server"
)

// seal gives the fleet a seal key, and cfg a token with it.
func (f *fleet) seal(cfg server.Config) server.Config {
	f.tb.Helper()
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		f.tb.Fatal(err)
	}
	key, err := seal.NewPrivateKey(x25519)
	if err != nil {
		f.tb.Fatal(err)
	}
	opener, err := seal.NewOpener(key)
	if err != nil {
		f.tb.Fatal(err)
	}
	f.set(func() { f.opener, f.sealers = opener, make(map[*nats.Msg]*seal.ReplySealer) })
	c := f.claims()
	c.Username, c.Password = "choria", "password-for-the-broker"
	if err := c.SetLimits(limits("", key.Public().String())); err != nil {
		f.tb.Fatal(err)
	}
	writeToken(f.tb, cfg.TokenFile, c)
	return cfg
}

// opened returns the plain message in m, and keeps the key for the reply.
func (f *fleet) opened(m *nats.Msg) []byte {
	f.mu.Lock()
	opener := f.opener
	f.mu.Unlock()
	e, err := wire.Open(m.Data, wire.MaxMessageBytes)
	if err != nil || !e.Sealed || opener == nil {
		return m.Data
	}
	purpose := seal.PurposeEnroll
	if m.Subject == wire.SubjectApplied {
		purpose = seal.PurposeApplied
	}
	message, sealer, err := opener.Open(purpose, e)
	if err != nil {
		return m.Data
	}
	f.set(func() {
		if f.sealers[m] = sealer; m.Subject == wire.SubjectEnroll {
			f.sessions = append(f.sessions, seal.SessionName(e.Encapsulated))
		}
	})
	return message
}

// replySealed answers a sealed message, and reports whether m was one. With a nil reply only the plain replies are
// sent.
func (f *fleet) replySealed(m *nats.Msg, r *wire.Reply) bool {
	f.mu.Lock()
	sealer, inPlain := f.sealers[m], f.inPlain
	f.mu.Unlock()
	if sealer == nil {
		return false
	}
	var all [][]byte
	for _, r := range inPlain {
		b, err := wire.Encode(r)
		if err != nil {
			f.tb.Error(err)
		}
		all = append(all, b)
	}
	if r != nil {
		b, err := sealer.EncodeReply(r)
		if err != nil {
			f.tb.Error(err)
		}
		all = append(all, b)
	}
	for _, b := range all {
		_ = m.Respond(b) // the node may be gone
	}
	return true
}

// The agent enrolls over two connections, and the test checks what it presents on each; it confirms unsealed in
// normal mode.
func TestSealedMode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.seal(f.node("web1.example.net"))
	tries := 0
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			if tries++; tries == 1 {
				return refuse(wire.CodeDeferred, time.Millisecond)(r)
			}
			return f.issue(r)
		}
		f.applied = func(a *wire.Applied) *wire.Reply { // until normal mode
			return &wire.Reply{ID: a.ID, Refusal: &wire.Refusal{Code: wire.CodeBusy, Message: "busy", RetryAfter: 10}}
		}
	})
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.set(func() { f.applied = accept })
	a.await(server.EventConfirmed, 1)

	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.enrolls) != 2 {
		t.Fatalf("%d requests, want 2", len(f.enrolls))
	}
	used := map[string]bool{}
	for i, r := range f.enrolls {
		c := f.connects[i]
		token, err := f.opener.OpenToken(c.seal)
		if err != nil || token != r.Token {
			t.Errorf("connection %d presents %+v: %v", i, c.seal, err)
		}
		if c.Username != "" || c.Password != "" {
			t.Errorf("connection %d presents user %q", i, c.Username)
		}
		if used[c.Nkey] || used[c.Name] || used[c.Token] || used[c.Sig] {
			t.Errorf("connection %d uses something again", i)
		}
		used[c.Nkey], used[c.Name], used[c.Token], used[c.Sig] = true, true, true, true
		if f.sessions[i] != c.Nkey {
			t.Errorf("the request of connection %d is of session %q, want %q", i, f.sessions[i], c.Nkey)
		}
	}
	if len(f.sealers) < 3 {
		t.Errorf("%d messages were sealed, want both requests and the confirmations before normal mode", len(f.sealers))
	}
	if c := f.connects[len(f.connects)-1]; c.Token != "" || c.Nkey != "" {
		t.Errorf("in normal mode the agent presents nkey %q", c.Nkey)
	}
	if text := readFile(t, cfg.TokenFile); strings.Contains(f.log.String(), strings.TrimSpace(text)) {
		t.Error("the token is in the log")
	}
}

// Sealed requests get plain replies that a node in plain mode would obey.
func TestPlainRepliesOnlySlowTheNode(t *testing.T) {
	t.Parallel()
	refusal := func(code wire.Code, after time.Duration) *wire.Reply {
		return &wire.Reply{Installation: "evil",
			Refusal: &wire.Refusal{Code: code, Message: "no", RetryAfter: after.Milliseconds()}}
	}
	tests := map[string]struct {
		replies []*wire.Reply
		says    string // of the next attempt
	}{
		"refusals that would end it": {[]*wire.Reply{refusal(wire.CodeShutdown, time.Millisecond)}, "it says"},
		"a confirmation": {[]*wire.Reply{{ID: "x", Installation: "evil",
			Applied: &wire.Accepted{Serial: "1"}}}, "message is not sealed"},
		"a wait":                {[]*wire.Reply{refusal(wire.CodeBusy, 10*time.Minute)}, "retry_in=10m0s"},
		"a wait beyond the cap": {[]*wire.Reply{refusal(wire.CodeBusy, 100*time.Hour)}, "retry_in=1h0m0s"},
		"the longest of several": {[]*wire.Reply{refusal(wire.CodeBusy, time.Minute),
			refusal(wire.CodeBusy, 7*time.Minute), refusal(wire.CodeBusy, time.Second)}, "retry_in=7m0s"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.seal(f.node("web1.example.net"))
			cfg.RequestTimeout = 100 * time.Millisecond
			f.set(func() {
				f.inPlain = tt.replies
				f.enroll = func(*wire.EnrollRequest) *wire.Reply { return nil }
			})
			a := f.run(cfg)
			a.await(server.EventFailed, 1)
			f.awaitLog("enrollment failed", tt.says, "the node ignores unsealed replies")
			// The real reply counts when it comes.
			f.set(func() { f.enroll = nil })
			writeFile(t, cfg.TokenFile, readFile(t, cfg.TokenFile)) // ends the wait
			a.await(server.EventConfirmed, 1)
		})
	}
}

// A request gets a reply that was sealed for another one.
func TestRepliesToOtherRequestsDoNotOpen(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.seal(f.node("web1.example.net"))
	cfg.RequestTimeout = 100 * time.Millisecond
	f.set(func() { f.enroll = func(*wire.EnrollRequest) *wire.Reply { return nil } })
	a := f.run(cfg)
	a.await(server.EventFailed, 1)
	var first *seal.ReplySealer
	f.set(func() {
		for _, s := range f.sealers {
			first = s
		}
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			reply := f.issue(r)
			f.mu.Lock()
			defer f.mu.Unlock()
			for m := range f.sealers {
				f.sealers[m] = first // a good answer, sealed for the first request
			}
			return reply
		}
	})
	a.await(server.EventFailed, 3)
	if n := f.countLog("enrollment failed", "does not open"); n == 0 {
		t.Errorf("log:\n%s", f.log.String())
	}
	f.set(func() { f.enroll = nil })
	a.await(server.EventConfirmed, 1)
}

// A node that has not enrolled.
func TestTheDoctorConnectsWithASealedToken(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.seal(f.node("web1.example.net"))
	f.set(func() {
		f.admit = func(string, *x509.Certificate) bool {
			_, err := f.opener.OpenToken(f.connects[len(f.connects)-1].seal)
			return err == nil
		}
	})
	findings, err := server.Doctor(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for what, detail := range map[string]string{"connection": "admits this node with the sealed token",
		"token": "sealed: true"} {
		if s := finding(findings, what); s.Status != server.StatusOK || !strings.Contains(s.Detail, detail) {
			t.Errorf("%s: %+v", what, s)
		}
	}
}

// finding returns the last finding about something.
func finding(findings []server.Finding, what string) server.Finding {
	found := server.Finding{What: what, Detail: "none"}
	for _, s := range findings {
		if s.What == what {
			found = s
		}
	}
	return found
}
