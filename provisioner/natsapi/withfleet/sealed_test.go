package natsapi_test

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/keyfile"
	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/natsapi"
)

// opener returns the opener of the fleet's seal key.
func opener(t *testing.T, f *testbed.Fleet) *seal.Opener {
	t.Helper()
	x, err := new(keyfile.Ring).X25519(filepath.Join(f.Dir, "seal-key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.NewPrivateKey(x)
	if err != nil {
		t.Fatal(err)
	}
	o, err := seal.NewOpener(key)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// of returns a request with the header that the broker adds for the connection of that name.
func of(subject, name string, data []byte) *nats.Msg { return from("192.0.2.1", subject, name, data) }

// from is of, with an address.
func from(host, subject, name string, data []byte) *nats.Msg {
	m := nats.NewMsg(subject)
	b, _ := json.Marshal(map[string]string{"host": host, "user": name})
	m.Header.Set("Nats-Request-Info", string(b))
	m.Data = data
	return m
}

// told returns the code of an unsealed refusal.
func told(t *testing.T, b []byte) wire.Code {
	t.Helper()
	r, err := wire.DecodeReply(b)
	if err != nil || r.Refusal == nil {
		t.Errorf("reply = %+v, %v, want a refusal in plain", r, err)
		return ""
	}
	return r.Refusal.Code
}

// TestRefusalsOfSealedRequestsAreSealed refuses sealed requests for every reason from their form to the policy.
func TestRefusalsOfSealedRequestsAreSealed(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	n := f.SealedNode("web1.example.net")
	nc := f.Dial(n.Token)
	session := simnode.Session(nc)
	tests := map[string]struct {
		message func(r *wire.EnrollRequest) any
		want    wire.Code
	}{
		"approval":          {func(r *wire.EnrollRequest) any { return r }, wire.CodeApprovalPending},
		"no identity":       {func(r *wire.EnrollRequest) any { r.Identity = "*"; return r }, wire.CodeIdentityInvalid},
		"no token":          {func(r *wire.EnrollRequest) any { r.Token = ""; return r }, wire.CodeTokenInvalid},
		"a forged token":    {func(r *wire.EnrollRequest) any { r.Token += "A"; return r }, wire.CodeTokenInvalid},
		"no CSR":            {func(r *wire.EnrollRequest) any { r.CSR = nil; return r }, wire.CodeCSRInvalid},
		"not a request":     {func(*wire.EnrollRequest) any { return "hello" }, wire.CodeBadRequest},
		"an empty request":  {func(*wire.EnrollRequest) any { return struct{}{} }, wire.CodeBadRequest},
		"a request id of 1": {func(r *wire.EnrollRequest) any { r.ID = strings.Repeat("x", 65); return r }, wire.CodeBadRequest},
		"too many facts": {func(r *wire.EnrollRequest) any {
			r.Facts = testbed.Facts(t, map[string]string{"a": strings.Repeat("x", wire.MaxFactsBytes)})
			return r
		}, wire.CodeTooLarge},
	}
	for name, tt := range tests {
		b, o, err := session.Encode(tt.message(n.Request()))
		if err != nil {
			t.Fatal(err)
		}
		m, err := nc.RequestWithContext(f.Context(), wire.SubjectEnroll, b)
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := o.DecodeReply(m.Data); err != nil || reply.Refusal == nil || reply.Refusal.Code != tt.want {
			t.Errorf("%s: %+v, %v, want %s, sealed", name, reply, err, tt.want)
		}
	}
	// A sealed message within a sealed message is nothing that anybody sends.
	inner, _, err := session.Encode(n.Request())
	if err != nil {
		t.Fatal(err)
	}
	s, o, err := session.Seal(seal.PurposeEnroll, inner)
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.RequestWithContext(f.Context(), wire.SubjectEnroll, wire.EncodeSealed(s.Key, s.Encapsulated, s.Ciphertext))
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := o.DecodeReply(m.Data); err != nil || reply.Refusal == nil || reply.Refusal.Code != wire.CodeBadRequest {
		t.Errorf("twice sealed: %+v, %v", reply, err)
	}
	f.Check()
}

// TestEnvelopesOfOtherImplementationsAreOpened seals a request in an envelope whose JSON is formatted in another way
// than ours.
func TestEnvelopesOfOtherImplementationsAreOpened(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.SealedNode("web1.example.net")
	nc := f.Dial(n.Token)
	b, o, err := simnode.Session(nc).Encode(n.Request())
	if err != nil {
		t.Fatal(err)
	}
	var e map[string]any
	if err := json.Unmarshal(b, &e); err != nil {
		t.Fatal(err)
	}
	spelled, err := json.MarshalIndent(e, "", "\t") // members in another order, too
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.RequestWithContext(f.Context(), wire.SubjectEnroll, spelled)
	if err != nil {
		t.Fatal(err)
	}
	if reply, err := o.DecodeReply(m.Data); err != nil || reply.Enrolled == nil {
		t.Errorf("reply = %+v, %v", reply, err)
	}
	f.Check()
}

// TestWithoutASealKeyNothingIsOpened sends sealed requests to a service without a seal key.
func TestWithoutASealKeyNothingIsOpened(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn := service(t, f, "test.", nil, nil)
	r := f.SealedNode("web1.example.net").Request()
	b, _, err := f.Session().Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{wire.SubjectEnroll, wire.SubjectApplied} {
		m, err := conn.RequestWithContext(f.Context(), "test."+subject, b)
		if err != nil {
			t.Fatal(err)
		}
		if got := told(t, m.Data); got != wire.CodeSealedUnsupported {
			t.Errorf("%s: %s, want %s", subject, got, wire.CodeSealedUnsupported)
		}
	}
	// Neither is the token good for a plain request.
	if reply := ask(t, f, conn, "test."+wire.SubjectEnroll, r); reply.Refusal == nil || reply.Refusal.Code != wire.CodeSealedInvalid {
		t.Errorf("in plain: %+v", reply)
	}
	f.Check()
}

// TestSealedRequestNeedsTheNameOfItsSession has the broker report no requester, as without `share`, or another name
// than that of the session. The request then belongs to no connection and is refused.
func TestSealedRequestNeedsTheNameOfItsSession(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	conn := service(t, f, "test.", nil, func(c *natsapi.Config) { c.Opener = opener(t, f) })
	session := f.Session()
	subject := "test." + wire.SubjectEnroll
	for name, ask := range map[string]func(b []byte) *nats.Msg{
		"nothing":                      func(b []byte) *nats.Msg { m := nats.NewMsg(subject); m.Data = b; return m },
		"no name":                      func(b []byte) *nats.Msg { return of(subject, "", b) },
		"the user of plain ones":       func(b []byte) *nats.Msg { return of(subject, "provisioning", b) },
		"the name of another session":  func(b []byte) *nats.Msg { return of(subject, f.Session().Name(), b) },
		"the beginning of the name":    func(b []byte) *nats.Msg { return of(subject, session.Name()[:42], b) },
		"the name, and something more": func(b []byte) *nats.Msg { return of(subject, session.Name()+"A", b) },
	} {
		r := f.SealedNode("web1.example.net").Request()
		b, o, err := session.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		m, err := conn.RequestMsgWithContext(f.Context(), ask(b))
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := o.DecodeReply(m.Data); err != nil || reply.Refusal == nil || reply.Refusal.Code != wire.CodeSealedInvalid || reply.ID != r.ID {
			t.Errorf("%s: %+v, %v, want %s", name, reply, err, wire.CodeSealedInvalid)
		}
	}
	f.Check()
}

// TestEveryProvisionerOpensMessagesOfASession sends the messages of one connection to services that share only the
// seal key. Each service gets another message first.
func TestEveryProvisionerOpensMessagesOfASession(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.SealedNode("web1.example.net")
	session := f.Session()
	ask := func(prefix, subject string, encode func() ([]byte, *seal.ReplyOpener, error)) *wire.Reply {
		t.Helper()
		conn := service(t, f, prefix, nil, func(c *natsapi.Config) { c.Opener = opener(t, f) })
		b, o, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		m, err := conn.RequestMsgWithContext(f.Context(), of(prefix+subject, session.Name(), b))
		if err != nil {
			t.Fatal(err)
		}
		r, err := o.DecodeReply(m.Data)
		if err != nil {
			t.Fatalf("%s: %v", prefix, err)
		}
		return r
	}
	request := func() ([]byte, *seal.ReplyOpener, error) { return session.Encode(n.Request()) }
	first, again := ask("one.", wire.SubjectEnroll, request), ask("two.", wire.SubjectEnroll, request)
	if first.Enrolled == nil || again.Enrolled == nil || first.Enrolled.Serial != again.Enrolled.Serial {
		t.Fatalf("replies %+v and %+v, want the same certificate", first, again)
	}
	a, err := n.Confirm(first.Enrolled)
	if err != nil {
		t.Fatal(err)
	}
	if r := ask("three.", wire.SubjectApplied, func() ([]byte, *seal.ReplyOpener, error) { return session.Encode(a) }); r.Applied == nil {
		t.Errorf("confirmation: %+v", r)
	}
	for _, want := range []events.Type{events.Enrolled, events.Provisioned} {
		if !slices.ContainsFunc(f.Events(), func(e events.Event) bool { return e.Type == want && e.Sealed }) {
			t.Errorf("no event %s says that it came sealed", want)
		}
	}
	f.Check()
}

// TestFailedOpeningIsChargedToTheAddress sends messages that do not open until the budget of the address is spent,
// and then one that does.
func TestFailedOpeningIsChargedToTheAddress(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	at := time.Now()
	conn := service(t, f, "test.", nil, func(c *natsapi.Config) {
		c.Opener = opener(t, f)
		c.Budget = provisioner.NewBudget(1, func() time.Time { return at }) // four at once, and no more
	})
	n := f.SealedNode("web1.example.net")
	session := f.Session()
	send := func(user string, damage bool) ([]byte, *seal.ReplyOpener) {
		b, o, err := session.Encode(n.Request())
		if err != nil {
			t.Fatal(err)
		}
		if damage {
			b = []byte(strings.Replace(string(b), `"ct":"`, `"ct":"AAAA`, 1))
			b = []byte(strings.Replace(string(b), `"}`, ``, 1))
			b = append(b[:len(b)-4], `"}`...) // as long as before
		}
		m, err := conn.RequestMsgWithContext(f.Context(), of("test."+wire.SubjectEnroll, user, b))
		if err != nil {
			t.Fatal(err)
		}
		return m.Data, o
	}
	for range 20 { // costs nothing that is not given back
		b, o := send(session.Name(), false)
		if r, err := o.DecodeReply(b); err != nil || r.Enrolled == nil {
			t.Fatalf("reply = %+v, %v", r, err)
		}
	}
	for range 2 {
		b, _ := send(session.Name(), true)
		if got := told(t, b); got != wire.CodeSealedInvalid {
			t.Errorf("damaged: %s, want %s", got, wire.CodeSealedInvalid)
		}
		b, o := send(f.Session().Name(), false) // recorded, and sent again
		if r, err := o.DecodeReply(b); err != nil || r.Refusal == nil || r.Refusal.Code != wire.CodeSealedInvalid {
			t.Errorf("recorded: %+v, %v", r, err)
		}
	}
	for _, damage := range []bool{false, true} {
		b, _ := send(session.Name(), damage)
		if got := told(t, b); got != wire.CodeBusy {
			t.Errorf("with the budget spent: %s, want %s", got, wire.CodeBusy)
		}
	}
	f.Check()
}

// TestSealedGarbageIsCharged seals messages that prove nothing, which any client can, until the budget of the
// address is spent.
func TestSealedGarbageIsCharged(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"confirmation", "token"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			at := time.Now()
			conn := service(t, f, "test.", nil, func(c *natsapi.Config) {
				c.Opener = opener(t, f)
				c.Budget = provisioner.NewBudget(1, func() time.Time { return at }) // four at once, and no more
			})
			n := f.SealedNode("web1.example.net")
			session := f.Session()
			enroll := func(token wire.Secret) ([]byte, *seal.ReplyOpener, string) {
				r := n.Request()
				if token != "" {
					r.Token = token
				}
				b, o, err := session.Encode(r)
				if err != nil {
					t.Fatal(err)
				}
				return b, o, wire.SubjectEnroll
			}
			send := func(b []byte, o *seal.ReplyOpener, subject string) (*wire.Reply, []byte) {
				m, err := conn.RequestMsgWithContext(f.Context(), of("test."+subject, session.Name(), b))
				if err != nil {
					t.Fatal(err)
				}
				r, _ := o.DecodeReply(m.Data)
				return r, m.Data
			}
			for range 4 {
				b, o, subject := enroll("garbage")
				if kind == "confirmation" {
					var err error
					subject = wire.SubjectApplied
					if b, o, err = session.Encode(&wire.Applied{ID: wire.NewID(), Identity: "web1.example.net", Serial: "1", Digest: "1", Signature: []byte("x")}); err != nil {
						t.Fatal(err)
					}
				}
				if r, _ := send(b, o, subject); r == nil || r.Refusal == nil {
					t.Fatalf("garbage: %+v, want it refused", r)
				}
			}
			if r, b := send(enroll("")); r != nil || told(t, b) != wire.CodeBusy {
				t.Errorf("with the budget spent: %+v, want %s", r, wire.CodeBusy)
			}
		})
	}
}

// TestBusyRepliesToSealedRequestsAreSealed blocks the only worker of a service that has nearly no queue. Sealed
// requests get a sealed `busy`, and unsealed ones an unsealed `busy`.
func TestBusyRepliesToSealedRequestsAreSealed(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	hold, held := make(chan struct{}), make(chan struct{})
	var once sync.Once
	conn := service(t, f, "test.", func(s provisioner.Store) provisioner.Store {
		slow := &testbed.Faults{Store: s}
		slow.RecordWrites.Before(func(context.Context, *provisioner.Record) { once.Do(func() { close(held) }); <-hold })
		return slow
	}, func(c *natsapi.Config) {
		c.Workers, c.Queue, c.Opener = 1, 1, opener(t, f)
		c.MaxWait, c.Timeout = time.Minute, time.Minute // as long as it takes to send all that follow
	})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release) // before the service ends
	send := func(identity string, key seal.PublicKey, request bool) (*nats.Subscription, *seal.ReplyOpener, string) {
		n := f.SealedNode(identity)
		session, err := seal.NewSession(key, n.Request().Token)
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		var o *seal.ReplyOpener
		id, subject := wire.NewID(), wire.SubjectEnroll
		if request {
			r := n.Request()
			r.ID = id
			b, o, err = session.Encode(r)
		} else {
			subject = wire.SubjectApplied
			b, o, err = session.Encode(&wire.Applied{ID: id, Identity: identity})
		}
		if err != nil {
			t.Fatal(err)
		}
		inbox := conn.NewInbox()
		sub, err := conn.SubscribeSync(inbox)
		if err != nil {
			t.Fatal(err)
		}
		m := of("test."+subject, session.Name(), b)
		m.Reply = inbox
		if err := conn.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		return sub, o, id
	}
	reply := func(sub *nats.Subscription) []byte {
		m, err := sub.NextMsgWithContext(f.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m.Data
	}
	working, o1, _ := send("web1.example.net", f.SealKey(), true)
	f.Eventually("the worker is held", func() bool {
		if refused, _, _ := working.Pending(); refused > 0 { // on a machine that stood still
			working, o1, _ = send("web1.example.net", f.SealKey(), true)
		}
		select {
		case <-held:
			return true
		default:
			return false
		}
	})
	waiting, o2, _ := send("web2.example.net", f.SealKey(), true)
	_, _, _ = send("web5.example.net", f.SealKey(), false) // there is room for one confirmation, too
	for i := range 20 {
		sub, o, id := send("web3.example.net", f.SealKey(), i%2 == 0)
		r, err := o.DecodeReply(reply(sub))
		if err != nil || r.Refusal == nil || r.Refusal.Code != wire.CodeBusy || r.Refusal.RetryAfter < 500 || r.ID != id {
			t.Fatalf("request %d: %+v, %v, want busy for %s, sealed", i, r, err, id)
		}
	}
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := seal.NewPrivateKey(x25519)
	if err != nil {
		t.Fatal(err)
	}
	sub, _, _ := send("web4.example.net", stranger.Public(), true)
	if got := told(t, reply(sub)); got != wire.CodeBusy {
		t.Errorf("what does not open is told %s, want %s", got, wire.CodeBusy)
	}
	release()
	for identity, sub := range map[string]*nats.Subscription{"web1.example.net": working, "web2.example.net": waiting} {
		o := map[*nats.Subscription]*seal.ReplyOpener{working: o1, waiting: o2}[sub]
		if r, err := o.DecodeReply(reply(sub)); err != nil || r.Enrolled == nil && !f.RefusedAsStale(&simnode.Node{Identity: identity}, r) {
			t.Errorf("%s, whose request was taken: %+v, %v, refused for %s", identity, r, err, f.Cause(identity))
		}
	}
	f.Check()
}

// TestEverySealedRequestOfAFloodIsAnswered sends more sealed requests than the queue and the queue of busy replies
// hold. Each one gets a reply that its node can verify.
func TestEverySealedRequestOfAFloodIsAnswered(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	hold := make(chan struct{})
	conn := service(t, f, "test.", func(s provisioner.Store) provisioner.Store {
		return &faulty{s, func(context.Context, wire.Identity) error { <-hold; return errors.New("it is over") }}
	}, func(c *natsapi.Config) { c.Workers, c.Queue, c.Opener = 1, 1, opener(t, f) })
	t.Cleanup(func() { close(hold) }) // before the service ends
	n := f.SealedNode("web1.example.net")
	inbox := conn.NewInbox()
	sub, err := conn.SubscribeSync(inbox + ".*")
	if err != nil {
		t.Fatal(err)
	}
	session := f.Session()
	const requests = 1500
	openers := map[string]*seal.ReplyOpener{} // by reply subject
	for range requests {
		r := n.Request()
		b, o, err := session.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		m := of("test."+wire.SubjectEnroll, session.Name(), b)
		m.Reply = inbox + "." + r.ID
		openers[m.Reply] = o
		if err := conn.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	for answered := range requests - 2 { // one is worked on, and one waits for that
		m, err := sub.NextMsgWithContext(f.Context())
		if err != nil {
			t.Fatalf("after %d answers: %v", answered, err)
		}
		r, err := openers[m.Subject].DecodeReply(m.Data)
		if err != nil || r.Refusal == nil || r.Refusal.Code != wire.CodeBusy || !strings.HasSuffix(m.Subject, r.ID) {
			t.Fatalf("answer %d: %+v, %v, want busy, sealed", answered, r, err)
		}
	}
	f.Check()
}
