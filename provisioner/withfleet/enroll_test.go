package provisioner_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

func TestANodeIsEnrolledThenProvisioned(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	r := f.Record(n.Identity)
	if r.State != provisioner.StateEnrolled || r.Next == nil || r.Next.Serial != e.Serial || r.Current != nil ||
		r.Decision.Reason != provisioner.ReasonNew {
		t.Fatalf("record after enrolling = %+v", r)
	}
	if reply := f.Apply(n, e); reply.Applied == nil || reply.Applied.Serial != e.Serial {
		t.Fatalf("confirmation: %+v", reply.Refusal)
	}
	r = f.Record(n.Identity)
	if r.State != provisioner.StateProvisioned || r.Current == nil || r.Current.Serial != e.Serial || r.Next != nil {
		t.Fatalf("record after the confirmation = %+v", r)
	}
	if e.Configuration["identity"] != n.Identity || e.Digest != wire.Digest(e.Certificate, e.Files) {
		t.Errorf("pushed %v with digest %s", e.Files, e.Digest)
	}
	// One write before the reply and one for the confirmation.
	if got := f.Faults.RecordWrites.Writes(); got != 2 {
		t.Errorf("%d writes, want 2", got)
	}
	f.Check()
}

func TestTheSameKeyGetsTheSameCertificate(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	first := f.Enroll(n)
	again := f.Enroll(n)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("the second reply differs (-first +second):\n%s", diff)
	}
	f.Apply(n, first)
	after := f.Enroll(n) // the node lost its configuration, not its key
	if diff := cmp.Diff(first, after); diff != "" {
		t.Errorf("the reply after provisioning differs (-first +later):\n%s", diff)
	}
	if got := f.Revisions(n.Identity); got != 2 {
		t.Errorf("%d revisions, want 2: replays write nothing", got)
	}
	f.Check()
}

func TestAChangedConfigurationIsOnRecordBeforeTheReply(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Template: "role = {{ or .Facts.role `none` }}\n"})
	n := f.Node("web1.example.net")
	n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	first := f.Enroll(n)
	f.Apply(n, first)
	n.Facts = testbed.Facts(t, map[string]string{"role": "db"})
	second := f.Enroll(n)
	if second.Serial != first.Serial || second.Digest == first.Digest || second.Configuration["role"] != "db" {
		t.Fatalf("second reply: serial %s, digest %s, configuration %v", second.Serial, second.Digest,
			second.Configuration)
	}
	r := f.Record(n.Identity)
	if r.Next == nil || r.Next.Digest != second.Digest || r.Current.Digest != first.Digest {
		t.Fatalf("record = %+v", r)
	}
	if reply := f.Apply(n, second); reply.Applied == nil {
		t.Fatalf("confirmation of the new configuration: %+v", reply.Refusal)
	}
	if r = f.Record(n.Identity); r.Current.Digest != second.Digest || r.Next != nil {
		t.Errorf("record = %+v", r)
	}
	f.Check()
}

func TestTheSameNodeAsksFiveTimesAtOnce(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	serials := make(chan string, 5)
	for range cap(serials) {
		nc := f.Dial(n.Token)
		go func() {
			r, err := simnode.Enroll(f.Context(), nc, n.Request())
			if err != nil || r.Enrolled == nil {
				t.Errorf("enroll: %v, %v", r, err)
				serials <- ""
				return
			}
			serials <- r.Enrolled.Serial
		}()
	}
	var got []string
	for range cap(serials) {
		got = append(got, <-serials)
	}
	if got[0] == "" || slices.ContainsFunc(got, func(s string) bool { return s != got[0] }) {
		t.Errorf("serials = %v, want one", got)
	}
	if n := f.Revisions("web1.example.net"); n != 1 {
		t.Errorf("%d revisions, want 1", n)
	}
	f.Check()
}

// TestRefusals has a row per reason. None leaves a record.
func TestRefusals(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	tests := map[string]struct {
		identity string // default web1.example.net
		token    func(*jwt.Claims)
		edit     func(*testing.T, *simnode.Node)
		want     wire.Code
	}{
		"identity in upper case":   {identity: "Web1.example.net", want: wire.CodeIdentityInvalid},
		"identity with a dot last": {identity: "web1.example.net.", want: wire.CodeIdentityInvalid},
		"identity that climbs":     {identity: "../../etc", want: wire.CodeIdentityInvalid},
		"identity as a wildcard":   {identity: "a.*", want: wire.CodeIdentityInvalid},
		"identity as everything":   {identity: ">", want: wire.CodeIdentityInvalid},
		"name of the provisioner":  {identity: "broker.fleet.test", want: wire.CodeIdentityReserved},
		"name of the broker":       {identity: "localhost", want: wire.CodeIdentityReserved},
		"name in the token's URLs": {identity: "nats.example.net", want: wire.CodeIdentityReserved,
			token: func(c *jwt.Claims) { c.Brokers = "other.example.net:4222, nats://nats.example.net:4222" }},
		"token for another name": {want: wire.CodeTokenIdentity, token: func(c *jwt.Claims) {
			if err := c.SetLimits(jwt.Limits{Identities: []wire.Pattern{"db*.example.net"}}); err != nil {
				t.Error(err)
			}
		}},
		"token for another site": {want: wire.CodeTokenSite, token: func(c *jwt.Claims) {
			if err := c.SetLimits(jwt.Limits{Site: "elsewhere"}); err != nil {
				t.Error(err)
			}
		}},
		"CSR for another name": {want: wire.CodeCSRIdentity, edit: func(t *testing.T, n *simnode.Node) {
			csr, err := simnode.CSR(n.Key, "db1.example.net")
			if err != nil {
				t.Fatal(err)
			}
			n.CSR = csr
		}},
		"CSR in PEM": {want: wire.CodeCSRInvalid, edit: func(_ *testing.T, n *simnode.Node) {
			n.CSR = []byte("-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n")
		}},
		"CSR that is not even PEM": {want: wire.CodeCSRInvalid,
			edit: func(_ *testing.T, n *simnode.Node) { n.CSR = []byte("not pem") }},
		"no CSR": {want: wire.CodeCSRInvalid, edit: func(_ *testing.T, n *simnode.Node) { n.CSR = nil }},
		"CSR with a broken signature": {want: wire.CodeCSRInvalid, edit: func(_ *testing.T, n *simnode.Node) {
			n.CSR = slices.Clone(n.CSR)
			n.CSR[len(n.CSR)-1] ^= 1
		}},
		"continuity that proves nothing": {want: wire.CodeBadRequest},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.identity == "" {
				tt.identity = "web1.example.net"
			}
			n, err := simnode.New(tt.identity, f.Token(tt.token))
			if err != nil {
				t.Fatal(err)
			}
			if tt.edit != nil {
				tt.edit(t, n)
			}
			request := n.Request()
			if tt.want == wire.CodeBadRequest {
				request.Continuity = &wire.Continuity{PublicKey: []byte("x"), Signature: []byte("y")}
			}
			nc := f.Dial(n.Token)
			reply, err := simnode.Enroll(f.Context(), nc, request)
			if err != nil || reply.Refusal == nil {
				t.Fatalf("reply = %+v, %v, want %s", reply, err, tt.want)
			}
			if reply.Refusal.Code != tt.want || reply.ID != request.ID || reply.Installation == "" {
				t.Errorf("refused as %s with id %q, want %s and %q", reply.Refusal.Code, reply.ID, tt.want, request.ID)
			}
		})
	}
	t.Cleanup(func() {
		if r := f.Record("web1.example.net"); r != nil {
			t.Errorf("a refused request left the record %+v", r)
		}
		f.Check()
	})
}

func TestConfirmations(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	e := f.Enroll(n)
	other := f.Node("web2.example.net")
	f.Apply(other, f.Enroll(other))
	confirm := func() *wire.Applied {
		a, err := n.Confirm(e)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	sign := func(by *simnode.Node, a *wire.Applied) {
		a.Signature, _ = wire.Sign(by.Key, wire.AppliedDigest(a.Identity, a.Serial, a.Digest))
	}
	tests := map[string]struct {
		edit func(*wire.Applied)
		want wire.Code
	}{
		"signed by a stranger": {func(a *wire.Applied) { sign(other, a) }, wire.CodeAppliedSignature},
		"not signed":           {func(a *wire.Applied) { a.Signature = nil }, wire.CodeAppliedSignature},
		"signature over another": {func(a *wire.Applied) {
			b := *a
			b.Digest = "x"
			sign(n, &b)
			a.Signature = b.Signature
		}, wire.CodeAppliedSignature},
		"for another digest": {func(a *wire.Applied) { a.Digest = other.Identity; sign(n, a) },
			wire.CodeNotIssued},
		"for another serial": {func(a *wire.Applied) { a.Serial = "1"; sign(n, a) }, wire.CodeNotIssued},
		"for another's identity": {func(a *wire.Applied) { a.Identity = other.Identity; sign(n, a) },
			wire.CodeNotIssued},
		"for an identity never seen": {func(a *wire.Applied) { a.Identity = "db.example.net"; sign(n, a) },
			wire.CodeNotIssued},
		"for what is no identity": {func(a *wire.Applied) { a.Identity = ">"; sign(n, a) },
			wire.CodeIdentityInvalid},
		"for an identity in upper case": {func(a *wire.Applied) { a.Identity = "WEB1.example.net"; sign(n, a) },
			wire.CodeIdentityInvalid},
	}
	for name, tt := range tests {
		a := confirm()
		tt.edit(a)
		if r := f.Send(n, a); r.Refusal == nil || r.Refusal.Code != tt.want || r.ID != a.ID {
			t.Errorf("confirmation %s: %+v, want %s", name, r, tt.want)
		}
	}
	if r := f.Record(n.Identity); r.State != provisioner.StateEnrolled {
		t.Fatalf("after forgeries the record is %s", r.State)
	}
	a := confirm()
	for i := range 3 { // the first, a retry and a replay
		if r := f.Send(n, a); r.Applied == nil {
			t.Errorf("confirmation %d: %+v", i+1, r.Refusal)
		}
	}
	if got := f.Revisions(n.Identity); got != 2 {
		t.Errorf("%d revisions, want 2: a duplicate writes nothing", got)
	}
	f.Check()
}
