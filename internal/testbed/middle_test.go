package testbed

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/server"
)

// hasty are agents with short waits, on a fleet without budgets, for attacks.
var hasty = Options{
	Agent: func(c *server.Config) {
		c.RequestTimeout, c.BackoffMax, c.WatchInterval = 700*time.Millisecond, 50*time.Millisecond, 20*time.Millisecond
	},
	Edit: func(c *daemon.Config) { c.Quotas.VerificationsPerSource = 0 },
}

// through returns a sealed token that leads to the broker through p.
func through(f *Fleet, p *Proxy) string {
	return f.Token(func(c *jwt.Claims) { c.Brokers = p.URL(); f.Seal(c) })
}

// message reports whether f is a message of enrollment.
func message(f Frame) bool { return f.HasPayload() && len(f.Payload) > 0 }

// One bit is flipped in messages of each kind, one at a time. The receiver never believes the result, unless the bit
// has no meaning.
func TestAFlippedBitIsNeverBelieved(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := New(t, hasty)
	p := f.Proxy()
	n := f.SealedNode("web1.example.net")
	n.Facts = Facts(t, map[string]string{"rack": "b4"})
	e := f.Enroll(n)
	confirmation, err := n.Confirm(e)
	if err != nil {
		t.Fatal(err)
	}
	if r := f.Send(n, confirmation); r.Applied == nil {
		t.Fatalf("applied: %+v", r.Refusal)
	}
	before := f.Revisions(n.Identity)
	positions := 96
	if testing.Short() {
		positions = 16
	}
	believed := 0
	for _, from := range []Side{FromNode, FromBroker} {
		for _, subject := range []string{wire.SubjectEnroll, wire.SubjectApplied} {
			for i := range positions {
				altered := false
				p.Alter(func(_ *Link, fr Frame) []Frame {
					if fr.From != from || !message(fr) {
						return []Frame{fr}
					}
					b := bytes.Clone(fr.Payload)
					b[i*(len(b)-1)/(positions-1)] ^= 1 << (i % 8)
					altered = true
					return []Frame{fr.With(b)}
				})
				nc, err := simnode.Dial(p.URL(), n.Token)
				if err != nil {
					t.Fatal(err)
				}
				var r *wire.Reply
				if subject == wire.SubjectEnroll {
					r, err = simnode.Enroll(f.Context(), nc, n.Request())
				} else {
					r, err = simnode.Apply(f.Context(), nc, confirmation)
				}
				nc.Close()
				switch {
				case !altered:
					t.Fatalf("side %d, %s, position %d: nothing was altered", from, subject, i)
				case err != nil:
				case r.Enrolled != nil && r.Enrolled.Digest == e.Digest && r.Enrolled.Serial == e.Serial,
					r.Applied != nil && r.Applied.Serial == e.Serial:
					believed++
				default:
					t.Errorf("side %d, %s, position %d: the node believes %+v", from, subject, i, r)
				}
			}
		}
	}
	// base64 has up to four unused bits in its last character.
	if believed > 4 {
		t.Errorf("%d altered messages were taken for good, want those of a bit without a meaning at most", believed)
	}
	if after := f.Revisions(n.Identity); after != before {
		t.Errorf("altered messages have written %d revisions", after-before)
	}
	f.Check()
}

// conversation waits for one enrollment: request, confirmation, and their replies.
func (f *Fleet) conversation(p *Proxy) []Frame {
	f.t.Helper()
	f.Eventually("a request and a confirmation with their replies", func() bool { return len(p.Frames(message)) >= 4 })
	return p.Frames(message)
}

// An ordeal is an attack on one agent's messages. It stops after a while, as random losses do.
type ordeal struct {
	mu   sync.Mutex
	seen int // guarded by mu: enrollment messages so far
	held []Frame
	do   func(o *ordeal, l *Link, f Frame, nth int) []Frame
}

// told matches the wait in a refusal.
var told = regexp.MustCompile(`"retry_after_ms":\d+`)

func (o *ordeal) alter(l *Link, f Frame) []Frame {
	o.mu.Lock()
	defer o.mu.Unlock()
	if message(f) {
		o.seen++
		// A plain refusal may slow a node down, by up to five minutes for a damaged message. The test does not wait
		// for that.
		if f.From == FromBroker && bytes.Contains(f.Payload, []byte(`"sealed":false`)) {
			f = f.With(told.ReplaceAll(f.Payload, []byte(`"retry_after_ms":1`)))
		}
	}
	return o.do(o, l, f, o.seen)
}

// Real agents survive every attack on the messages between them and the broker, and end provisioned by the real
// provisioner, with exactly what is on record.
func TestAgentsSurviveAttacksOnTheirMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := New(t, hasty)
	evil := New(t, hasty)
	fromEvil := evil.Enroll(evil.Node("web99.example.net"))
	// Recorded from another node, to be inserted into other conversations.
	other := f.Proxy()
	f.Agent("other.example.net", through(f, other))
	recorded := f.conversation(other)
	of := func(from Side) []Frame {
		var list []Frame
		for _, fr := range recorded {
			if fr.From == from {
				list = append(list, fr)
			}
		}
		return list
	}
	theirRequests, theirReplies := of(FromNode), of(FromBroker)
	pass := func(fr Frame) []Frame { return []Frame{fr} }
	forge := func(r *wire.Reply) []byte {
		b, err := wire.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}

	ordeals := map[string]func(o *ordeal, l *Link, f Frame, nth int) []Frame{
		"the first message of each side is lost": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if message(fr) && nth <= 2 {
				return nil
			}
			return pass(fr)
		},
		"every reply is lost once": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if message(fr) && fr.From == FromBroker && nth%4 == 2 && nth < 12 {
				return nil
			}
			return pass(fr)
		},
		"every message comes three times": func(_ *ordeal, _ *Link, fr Frame, _ int) []Frame {
			if message(fr) {
				return []Frame{fr, fr, fr}
			}
			return pass(fr)
		},
		"a bit of every message is flipped": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if !message(fr) || nth > 6 {
				return pass(fr)
			}
			b := bytes.Clone(fr.Payload)
			b[len(b)*nth/7] ^= 1 << (nth % 7)
			return []Frame{fr.With(b)}
		},
		"NATS itself is damaged": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if message(fr) && nth <= 4 {
				fr.Op = strings.Map(func(r rune) rune { return r ^ 1 }, fr.Op)
			}
			return pass(fr)
		},
		"messages are cut off": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if message(fr) && nth <= 4 {
				return []Frame{fr.With(fr.Payload[:len(fr.Payload)/2])}
			}
			return pass(fr)
		},
		"the connection ends after each message": func(_ *ordeal, l *Link, fr Frame, nth int) []Frame {
			if message(fr) && nth <= 4 {
				l.Send(fr.From, fr)
				l.Close()
				return nil
			}
			return pass(fr)
		},
		"the reply to one request answers the next": func(o *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if !message(fr) || fr.From != FromBroker || nth > 8 {
				return pass(fr)
			}
			o.held = append(o.held, fr)
			if len(o.held) < 2 {
				return nil
			}
			return []Frame{fr.With(o.held[len(o.held)-2].Payload)} // its own is dropped
		},
		"older replies overtake": func(o *ordeal, _ *Link, fr Frame, _ int) []Frame {
			if !message(fr) || fr.From != FromBroker {
				return pass(fr)
			}
			if len(o.held) < 2 {
				o.held = append(o.held, fr)
				return nil
			}
			return []Frame{fr.With(o.held[0].Payload), fr}
		},
		"another node's replies come first": func(_ *ordeal, _ *Link, fr Frame, _ int) []Frame {
			if !message(fr) || fr.From != FromBroker {
				return pass(fr)
			}
			return []Frame{fr.With(theirReplies[0].Payload), fr.With(theirReplies[1].Payload), fr}
		},
		"another node's requests go in its place": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if !message(fr) || fr.From != FromNode || nth > 4 {
				return pass(fr)
			}
			return []Frame{fr.With(theirRequests[0].Payload), fr.With(theirRequests[1].Payload)}
		},
		"parts of another node's request are put into its own": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if !message(fr) || fr.From != FromNode || nth > 6 {
				return pass(fr)
			}
			return []Frame{fr.With(splice(t, fr.Payload, theirRequests[0].Payload,
				[]string{"key", "enc", "ct"}[nth%3]))}
		},
		"requests go as confirmations, and the other way round": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if !message(fr) || fr.From != FromNode || nth > 6 {
				return pass(fr)
			}
			to := map[string]string{wire.SubjectEnroll: wire.SubjectApplied,
				wire.SubjectApplied: wire.SubjectEnroll}[fr.Subject()]
			fr.Args = strings.Replace(fr.Args, fr.Subject(), to, 1)
			return pass(fr)
		},
		"another provisioner answers in plain": func(_ *ordeal, _ *Link, fr Frame, _ int) []Frame {
			if !message(fr) || fr.From != FromBroker {
				return pass(fr)
			}
			return []Frame{
				fr.With(forge(&wire.Reply{ID: "x", Installation: "evil", Enrolled: fromEvil})),
				fr.With(forge(&wire.Reply{ID: "x", Installation: "evil",
					Applied: &wire.Accepted{Serial: fromEvil.Serial}})),
				fr,
			}
		},
		"everybody tells it to stop": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if !message(fr) || fr.From != FromBroker || nth > 8 {
				return pass(fr)
			}
			var all []Frame
			for _, code := range []wire.Code{wire.CodeShutdown, wire.CodeSealedUnsupported,
				wire.CodeUnsupportedVersion, wire.CodeTokenInvalid, wire.CodeNotIssued} {
				all = append(all, fr.With(forge(&wire.Reply{Installation: "evil",
					Refusal: &wire.Refusal{Code: code, RetryAfter: 1}})))
			}
			return all // the real reply is dropped
		},
		"the broker offers no nonce": func(_ *ordeal, l *Link, fr Frame, _ int) []Frame {
			if fr.Op == "INFO" && l.Number <= 2 {
				fr.Args = info(t, fr.Args, "nonce", nil)
			}
			return pass(fr)
		},
		"the broker's nonce is another": func(_ *ordeal, l *Link, fr Frame, _ int) []Frame {
			if fr.Op == "INFO" && l.Number <= 2 {
				fr.Args = info(t, fr.Args, "nonce", "AAAAAAAAAAAAAAA")
			}
			return pass(fr)
		},
		"the broker insists on TLS": func(_ *ordeal, l *Link, fr Frame, _ int) []Frame {
			if fr.Op == "INFO" && l.Number <= 2 {
				fr.Args = info(t, fr.Args, "tls_required", true)
			}
			return pass(fr)
		},
		"the broker refuses it": func(_ *ordeal, l *Link, fr Frame, _ int) []Frame {
			if fr.Op == "PONG" && l.Number <= 3 {
				return []Frame{{Op: "-ERR", Args: "'Authorization Violation'"}}
			}
			return pass(fr)
		},
		"no responders, says the broker": func(_ *ordeal, _ *Link, fr Frame, nth int) []Frame {
			if !message(fr) || fr.From != FromBroker || nth > 4 {
				return pass(fr)
			}
			const status = "NATS/1.0 503\r\n\r\n"
			args := strings.Fields(fr.Args)
			return []Frame{{Op: "HMSG", Args: fmt.Sprintf("%s %s %d %d", args[0], args[1], len(status), len(status)),
				Payload: []byte(status)}}
		},
	}
	names := slices.Sorted(maps.Keys(ordeals))
	var agents []*Agent
	var proxies []*Proxy
	var tokens []string
	for i, name := range names {
		p := f.Proxy()
		p.Alter((&ordeal{do: ordeals[name]}).alter)
		proxies, tokens = append(proxies, p), append(tokens, through(f, p))
		agents = append(agents, f.Agent(fmt.Sprintf("web%d.example.net", i), tokens[i]))
	}
	for i, name := range names {
		f.Eventually(name+": its agent is provisioned", agents[i].Provisioned)
		agents[i].Stop()
		seen := append(proxies[i].Recorded(FromNode), proxies[i].Recorded(FromBroker)...)
		for what, secret := range map[string]string{"token": tokens[i], "name": agents[i].Identity,
			"pushed value": Setting} {
			if form := onTheWire(seen, []byte(secret)); form != "" {
				t.Errorf("%s: the %s is on the wire, as %s", name, what, form)
			}
		}
	}
	f.Check()
	evil.Check()
}

// splice returns the envelope a with one member of the envelope b.
func splice(t *testing.T, a, b []byte, member string) []byte {
	t.Helper()
	var to, from map[string]json.RawMessage
	if err := json.Unmarshal(a, &to); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &from); err != nil {
		t.Fatal(err)
	}
	to[member] = from[member]
	out, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// info returns the arguments of INFO with a member changed or removed.
func info(t *testing.T, args, member string, value any) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(args), &m); err != nil {
		t.Fatal(err)
	}
	if m[member] = value; value == nil {
		delete(m, member)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestAnotherProvisionerGetsNoNode leads an agent to an installation with its own authority and seal key that trusts
// the agent's signer. The agent changes nothing on its disk until it is led back.
func TestAnotherProvisionerGetsNoNode(t *testing.T) {
	t.Parallel()
	f := New(t, hasty)
	options := hasty
	options.Edit = func(c *daemon.Config) {
		hasty.Edit(c)
		c.Tokens.Signers = []daemon.SignerConfig{{File: filepath.Join(f.Dir, "signer.pem")}}
	}
	evil := New(t, options)
	for name, token := range map[string]func(c *jwt.Claims){
		"sealed": func(c *jwt.Claims) { f.Seal(c) },
		// Without TLS a pin keeps out only the false certificate; the other side gets the token and everything else.
		"plain and pinned": func(c *jwt.Claims) {
			if err := c.SetLimits(jwt.Limits{CA: f.Daemon().CAFingerprint()}); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := f.Proxy()
			p.Target(evil.URL())
			sealed := name == "sealed"
			identity := map[bool]string{true: "web1.example.net", false: "web2.example.net"}[sealed]
			again := func() string { return f.Token(func(c *jwt.Claims) { c.Brokers = p.URL(); token(c) }) }
			a := f.Agent(identity, again())
			if sealed {
				f.Eventually("the agent has tried it twice", func() bool {
					return len(p.Frames(func(fr Frame) bool { return fr.Op == "-ERR" })) >= 2
				})
				if r := evil.Record(identity); r != nil {
					t.Errorf("the other provisioner has it on record: %+v", r)
				}
			} else {
				f.Eventually("the other provisioner hears that its certificate is of no use", func() bool {
					return slices.ContainsFunc(evil.Events(), func(e events.Event) bool {
						return e.Node == identity && e.Type == events.Refused && e.Code == wire.CodeOfferUnusable
					})
				})
				if r := evil.Record(identity); r == nil || r.Current != nil {
					t.Errorf("the other provisioner has on record: %+v", r)
				}
			}
			for _, name := range []string{"..data", "private.pem", "certificate.pem", "server.conf"} {
				if _, err := os.Lstat(filepath.Join(a.Dir, name)); !os.IsNotExist(err) {
					t.Errorf("the agent has put %s in force", name)
				}
			}
			p.Target(f.URL())
			p.Cut()
			// It waits as the other provisioner said, as in plain mode with any peer, until an operator replaces the
			// file.
			if err := os.WriteFile(a.Token, []byte(again()), 0o600); err != nil {
				t.Fatal(err)
			}
			f.WaitProvisioned(a)
		})
	}
	f.Check()
}

// An opener with another key finds nothing to open in recorded messages.
func TestOnlyTheSealKeyAnswers(t *testing.T) {
	t.Parallel()
	f := New(t, Options{})
	p := f.Proxy()
	f.Agent("web1.example.net", through(f, p))
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.NewPrivateKey(x25519)
	if err != nil {
		t.Fatal(err)
	}
	thief, err := seal.NewOpener(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, fr := range f.conversation(p) {
		e, err := wire.Open(fr.Payload, seal.MaxReplyBytes)
		if err != nil || !e.Sealed {
			t.Errorf("%s %s is not sealed: %v", fr.Op, fr.Args, err)
			continue
		}
		e.Key = key.Public().ID()
		if _, _, err := thief.Open(seal.PurposeEnroll, e); err == nil {
			t.Errorf("%s %s opens as a request", fr.Op, fr.Args)
		}
		if _, _, err := thief.Open(seal.PurposeApplied, e); err == nil {
			t.Errorf("%s %s opens as a confirmation", fr.Op, fr.Args)
		}
	}
	f.Check()
}
