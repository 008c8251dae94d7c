package testbed

import (
	"bufio"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/internal/keyfile"
	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
)

// raw connects to the broker without a client library, sends lines and returns the first meaningful line after INFO.
func (f *Fleet) raw(send func(nonce string) []byte) string {
	f.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(f.URL(), "nats://"))
	if err != nil {
		f.t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		f.t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		f.t.Fatal(err)
	}
	var hello struct {
		Nonce string `json:"nonce"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &hello); err != nil || hello.Nonce == "" {
		f.t.Fatalf("%v in %s", err, line)
	}
	if _, err := conn.Write(send(hello.Nonce)); err != nil {
		f.t.Fatal(err)
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "INFO") {
			return line
		}
	}
}

// connect returns a CONNECT with these members.
func connect(members map[string]any) []byte {
	b, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return []byte("CONNECT " + string(b) + "\r\nPING\r\n")
}

// proof returns the signature of a session's connection.
func proof(t *testing.T, s *seal.Session, nonce string) string {
	t.Helper()
	b, err := s.Prove([]byte(nonce))
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// onEveryBroker runs a test with the embedded broker, and with a nats-server with auth callout.
func onEveryBroker(t *testing.T, test func(*testing.T, *Fleet)) {
	t.Parallel()
	for name, o := range map[string]Options{"embedded": {}, "nats-server": {Servers: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, New(t, o))
		})
	}
}

// An agent's CONNECT is recorded and presented again in every way.
func TestARecordedConnectIsWorthless(t *testing.T) { onEveryBroker(t, aRecordedConnectIsWorthless) }

func aRecordedConnectIsWorthless(t *testing.T, f *Fleet) {
	p := f.Proxy()
	token := through(f, p)
	f.WaitProvisioned(f.Agent("web1.example.net", token))
	connects := p.Frames(func(fr Frame) bool { return fr.Op == "CONNECT" })
	var recorded map[string]any
	if len(connects) == 0 || json.Unmarshal([]byte(connects[0].Args), &recorded) != nil || recorded["nkey"] == "" ||
		recorded["sig"] == "" {
		t.Fatalf("recorded %+v", connects)
	}
	session := f.Session()
	public, sign := session.Name(), func(nonce string) string { return proof(t, session, nonce) }
	key, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	user, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	with := func(nonce string, members map[string]any) []byte {
		c := map[string]any{}
		for k, v := range recorded {
			c[k] = v
		}
		for k, v := range members {
			if c[k] = v; v == nil {
				delete(c, k)
			} else if v == "sign" {
				c[k] = sign(nonce)
			}
		}
		return connect(c)
	}
	tests := map[string]struct {
		members map[string]any
		code    wire.Code
	}{
		"as it was":                 {nil, wire.CodeSealedInvalid},
		"with a proof of another":   {map[string]any{"sig": "sign"}, wire.CodeSealedInvalid},
		"with a session of our own": {map[string]any{"nkey": public, "sig": "sign"}, wire.CodeSealedInvalid},
		"with its nkey, our token":  {map[string]any{"auth_token": session.Token()}, wire.CodeSealedInvalid},
		"with an nkey of NATS":      {map[string]any{"nkey": user, "sig": "sign"}, wire.CodeSealedInvalid},
		"without an nkey":           {map[string]any{"nkey": nil, "sig": nil}, wire.CodeSealedInvalid},
		"with the nkey as user": {map[string]any{"nkey": nil, "sig": nil, "user": recorded["nkey"],
			"pass": "x"}, wire.CodeSealedInvalid},
		"with a damaged token": {map[string]any{"nkey": public, "sig": "sign",
			"auth_token": fmt.Sprint(recorded["auth_token"]) + "A"}, wire.CodeSealedInvalid},
		"with a token of another kind": {map[string]any{"nkey": public, "sig": "sign",
			"auth_token": "muster-sealed-v2.x.y.z"}, wire.CodeSealedInvalid},
		"with a token far too long": {map[string]any{"nkey": public, "sig": "sign",
			"auth_token": "muster-sealed-v1." + strings.Repeat("A", seal.MaxSealedTokenBytes)}, wire.CodeTokenInvalid},
		"with the token in plain": {map[string]any{"nkey": nil, "sig": nil, "auth_token": token},
			wire.CodeSealedInvalid},
		"with the token in plain, nkey": {map[string]any{"nkey": public, "sig": "sign", "auth_token": token},
			wire.CodeBadRequest},
	}
	for name, tt := range tests {
		before := len(f.Events())
		if got := f.raw(func(nonce string) []byte {
			return with(nonce, tt.members)
		}); !strings.Contains(got, "Authorization Violation") {
			t.Errorf("%s: the broker says %q", name, got)
		}
		if !slices.ContainsFunc(f.Events()[before:], func(e events.Event) bool {
			return e.Code == tt.code && e.Type == events.Attempt
		}) {
			t.Errorf("%s: no event with %s, but %+v", name, tt.code, f.Events()[before:])
		}
	}
	// The test can tell: with a proof over this connection's nonce by the token's session, the connection is
	// admitted.
	if got := f.raw(func(nonce string) []byte {
		return with(nonce, map[string]any{"nkey": public, "sig": "sign", "auth_token": session.Token()})
	}); got != "PONG" {
		t.Errorf("an honest connection: the broker says %q", got)
	}
	f.Check()
}

// A recorded enroll request is sent again on every connection that an attacker can have. The reply is a refusal that
// the attacker cannot read.
func TestARecordedRequestIsWorthless(t *testing.T) { onEveryBroker(t, aRecordedRequestIsWorthless) }

func aRecordedRequestIsWorthless(t *testing.T, f *Fleet) {
	p := f.Proxy()
	n := f.SealedNode("web1.example.net")
	nc, err := simnode.Dial(p.URL(), n.Token)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	request, opener, err := simnode.Session(nc).Encode(n.Request())
	if err != nil {
		t.Fatal(err)
	}
	send := func(nc *nats.Conn, b []byte) (*wire.Reply, error) {
		m, err := nc.RequestWithContext(f.Context(), wire.SubjectEnroll, b)
		if err != nil {
			t.Fatal(err)
		}
		return opener.DecodeReply(m.Data)
	}
	// On its own connection it may be repeated: the same key gets the same certificate.
	var serial string
	for range 3 {
		r, err := send(nc, request)
		if err != nil || r.Enrolled == nil || serial != "" && r.Enrolled.Serial != serial {
			t.Fatalf("on its own connection: %+v, %v", r, err)
		}
		serial = r.Enrolled.Serial
	}
	if got := f.Revisions(n.Identity); got != 1 {
		t.Errorf("%d revisions, want 1", got)
	}

	thief := f.Dial(f.Token(f.Seal))
	plain := f.Dial(f.Token(nil))
	disguised, err := simnode.Dial(f.URL(), f.Token(nil), nats.UserInfo(nc.Opts.Nkey, "x"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(disguised.Close)
	for name, c := range map[string]*nats.Conn{"another sealed connection": thief, "a plain connection": plain,
		"a user called like the session": disguised} {
		r, err := send(c, request)
		if err != nil || r.Refusal == nil || r.Refusal.Code != wire.CodeSealedInvalid {
			t.Errorf("%s: %+v, %v, want %s, for the owner of the request only", name, r, err, wire.CodeSealedInvalid)
		}
		m, err := c.RequestWithContext(f.Context(), wire.SubjectEnroll, request)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.DecodeReply(m.Data); !errors.Is(err, wire.ErrSealed) {
			t.Errorf("%s: the answer can be read: %v", name, err)
		}
	}
	// The recorded salt and ciphertext under the session of the sending connection, and a request of a session
	// without a connection.
	var stolen wire.Envelope
	if err := json.Unmarshal(request, &stolen); err != nil {
		t.Fatal(err)
	}
	mine, o, err := simnode.Session(thief).Encode(f.Node("web2.example.net").Request())
	if err != nil {
		t.Fatal(err)
	}
	var own wire.Envelope
	if err := json.Unmarshal(mine, &own); err != nil {
		t.Fatal(err)
	}
	m, err := thief.RequestWithContext(f.Context(), wire.SubjectEnroll,
		wire.EncodeSealed(own.Key, own.Encapsulated, stolen.Ciphertext))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.DecodeReply(m.Data); !errors.Is(err, seal.ErrPlain) {
		t.Errorf("a recorded request under another session: %v, want %v", err, seal.ErrPlain)
	}
	r := f.Node("web2.example.net").Request()
	b, o, err := f.Session().Encode(r)
	if err != nil {
		t.Fatal(err)
	}
	if m, err = thief.RequestWithContext(f.Context(), wire.SubjectEnroll, b); err != nil {
		t.Fatal(err)
	}
	if reply, err := o.DecodeReply(m.Data); err != nil || reply.Refusal == nil ||
		reply.Refusal.Code != wire.CodeSealedInvalid || reply.ID != r.ID {
		t.Errorf("of a session without a connection: %+v, %v", reply, err)
	}
	// The sealed token in a plain request, on a connection admitted with another token.
	for name, c := range map[string]*nats.Conn{"sealed": thief, "plain": plain} {
		r := f.SealedNode("web3.example.net").Request()
		b, err := wire.Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.RequestWithContext(f.Context(), wire.SubjectEnroll, b)
		if err != nil {
			t.Fatal(err)
		}
		if reply, err := wire.DecodeReply(m.Data); err != nil || reply.Refusal == nil ||
			reply.Refusal.Code != wire.CodeSealedInvalid {
			t.Errorf("in plain on a %s connection: %+v, %v", name, reply, err)
		}
	}
	if r := f.Record("web3.example.net"); r != nil {
		t.Errorf("record = %+v", r)
	}
	f.Check()
}

// Everything that an agent has sent is played again on a new connection.
func TestAWholeRecordedConversationIsWorthless(t *testing.T) {
	onEveryBroker(t, aWholeRecordedConversationIsWorthless)
}

func aWholeRecordedConversationIsWorthless(t *testing.T, f *Fleet) {
	p := f.Proxy()
	a := f.Agent("web1.example.net", through(f, p))
	f.WaitProvisioned(a)
	f.conversation(p)
	a.Stop()
	p.Alter(nil)
	before := f.Revisions(a.Identity)
	if got := f.raw(func(string) []byte {
		return p.Recorded(FromNode)
	}); !strings.Contains(got, "Authorization Violation") {
		t.Errorf("the broker says %q", got)
	}
	if after := f.Revisions(a.Identity); after != before {
		t.Errorf("%d revisions more", after-before)
	}
	f.Check()
}

// Over connections of all kinds: the signature of the certificate's key counts.
func TestSealedConfirmationsCountByTheirSignature(t *testing.T) {
	onEveryBroker(t, sealedConfirmationsAreWorthTheirSignature)
}

func sealedConfirmationsAreWorthTheirSignature(t *testing.T, f *Fleet) {
	n := f.SealedNode("web1.example.net")
	e := f.Enroll(n)
	a, err := n.Confirm(e)
	if err != nil {
		t.Fatal(err)
	}
	fleet, err := n.DialFleet(f.URL(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Close)
	for name, nc := range map[string]*nats.Conn{"sealed": f.Dial(n.Token), "plain": f.Dial(f.Token(nil)),
		"fleet": fleet} {
		b, opener, err := f.Session().Encode(a)
		if err != nil {
			t.Fatal(err)
		}
		for subject, good := range map[string]bool{wire.SubjectApplied: true, wire.SubjectEnroll: false} {
			if name == "fleet" && !good {
				continue // it may not publish there
			}
			m, err := nc.RequestWithContext(f.Context(), subject, b)
			if err != nil {
				t.Fatal(err)
			}
			switch r, err := opener.DecodeReply(m.Data); {
			case good && (err != nil || r.Applied == nil):
				t.Errorf("%s, %s: %+v, %v", name, subject, r, err)
			case !good && !errors.Is(err, seal.ErrPlain):
				t.Errorf("%s: a confirmation was opened as a request: %+v, %v", name, r, err)
			}
		}
	}
	if got := f.Revisions(n.Identity); got != 2 {
		t.Errorf("%d revisions, want one for the offer and one for the first confirmation", got)
	}
	f.Check()
}

// Tokens of two keys work side by side; then the older key is removed: its tokens are refused, and the log says why.
func TestSealKeysAreRotated(t *testing.T) {
	t.Parallel()
	f := New(t, hasty)
	old, older := f.Token(f.Seal), f.SealKey()
	x, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.NewPrivateKey(x)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyfile.Marshal(x, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.Stop()
	f.Write("provisioner.yaml", strings.Replace(f.read("provisioner.yaml"), "    - seal-key.pem\n",
		"    - seal-key-2.pem\n    - seal-key.pem\n", 1))
	f.Write("seal.pub", key.Public().String()+"\n")
	if err := os.WriteFile(filepath.Join(f.Dir, "seal-key-2.pem"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	f.Start()
	if got := f.Daemon().SealKey(); got != key.Public().String() {
		t.Errorf("SealKey = %q, want the first of the configuration", got)
	}
	newer := f.Token(f.Seal)
	for i, token := range []string{old, newer} {
		f.WaitProvisioned(f.Agent(fmt.Sprintf("web%d.example.net", i), token))
	}
	f.Stop()
	f.Write("provisioner.yaml", strings.Replace(f.read("provisioner.yaml"), "    - seal-key.pem\n", "", 1))
	f.Start()
	late := f.Agent("web2.example.net", old)
	f.WaitProvisioned(f.Agent("web3.example.net", newer))
	f.Eventually("the log says which key it was and what to do", func() bool {
		log := f.Log()
		return strings.Contains(log, older.ID()) && strings.Contains(log, "sealed to an unknown key") &&
			strings.Contains(log, "sign tokens for the present seal.pub")
	})
	f.Eventually("the agent's log says so, too", func() bool {
		return strings.Contains(f.Log(), "the provisioner does not have the token's seal key")
	})
	if late.Provisioned() {
		t.Error("a token of the former key is good")
	}
	// On its own connection such a request is refused too, in plain.
	n, err := simnode.New("web4.example.net", old)
	if err != nil {
		t.Fatal(err)
	}
	nc := f.Dial(newer)
	former, err := seal.NewSession(older, n.Request().Token)
	if err != nil {
		t.Fatal(err)
	}
	b, opener, err := former.Encode(n.Request())
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.RequestWithContext(f.Context(), wire.SubjectEnroll, b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opener.DecodeReply(m.Data); !errors.Is(err, seal.ErrPlain) {
		t.Errorf("a request to the former key: %v, want %v", err, seal.ErrPlain)
	}
	if reply, err := wire.DecodeReply(m.Data); err != nil || reply.Refusal == nil ||
		reply.Refusal.Code != wire.CodeSealedInvalid {
		t.Errorf("a request to the former key: %+v, %v", reply, err)
	}
	// A token of the remaining key repairs the agent.
	if err := os.WriteFile(late.Token, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	f.WaitProvisioned(late)
	f.Check()
}

// read returns a file of the setup.
func (f *Fleet) read(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.Dir, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}

// The agent's token is sealed to a key that does not exist, and the test listens.
func TestARefusedAgentNeverShowsItsToken(t *testing.T) {
	t.Parallel()
	f := New(t, hasty)
	p := f.Proxy()
	x25519, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.NewPrivateKey(x25519)
	if err != nil {
		t.Fatal(err)
	}
	token := f.Token(func(c *jwt.Claims) {
		c.Brokers, c.Username, c.Password = p.URL(), "choria", "password-for-the-broker"
		if err := c.SetLimits(jwt.Limits{Seal: key.Public().String()}); err != nil {
			t.Error(err)
		}
	})
	a := f.Agent("web1.example.net", token)
	f.Eventually("the agent was refused five times", func() bool {
		return len(p.Frames(func(fr Frame) bool { return fr.Op == "-ERR" })) >= 5
	})
	a.Stop()
	seen := p.Recorded(FromNode)
	for what, secret := range map[string]string{"token": token, "password": "password-for-the-broker",
		"user": `"choria"`} {
		if form := onTheWire(seen, []byte(secret)); form != "" {
			t.Errorf("the %s was shown, as %s", what, form)
		}
	}
	keys := map[any]bool{}
	for _, fr := range p.Frames(func(fr Frame) bool { return fr.Op == "CONNECT" }) {
		var c map[string]any
		if err := json.Unmarshal([]byte(fr.Args), &c); err != nil {
			t.Fatal(err)
		}
		for _, member := range []string{"nkey", "auth_token", "sig", "name"} {
			if keys[c[member]] {
				t.Errorf("%s was used twice: %v", member, c[member])
			}
			keys[c[member]] = true
		}
	}
	f.Check()
}
