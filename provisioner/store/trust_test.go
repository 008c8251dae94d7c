package store_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/store"
)

// revocation returns a good entry.
func revocation(id string, edit func(*provisioner.Revocation)) *provisioner.Revocation {
	r := &provisioner.Revocation{
		Schema: provisioner.RevocationSchema, ID: id, Kind: provisioner.RevokedNode, At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		By: "operator", Why: "stolen", Node: web1, Keys: []string{"k1"},
		Certificates: []provisioner.RevokedCertificate{{Serial: "5b1f", NotAfter: time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC), Issuer: "aa"}},
	}
	if edit != nil {
		edit(r)
	}
	return r
}

const tid = jwt.TokenID("00112233445566778899aabbccddeeff")

func ofToken(r *provisioner.Revocation) {
	r.Kind, r.Node, r.Keys, r.Certificates, r.Token = provisioner.RevokedToken, "", nil, nil, tid
}

func ofRetired(r *provisioner.Revocation) { r.Kind, r.Keys = provisioner.RetiredNode, nil }

func TestTheLogOfRevocationsIsFollowed(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	if e, at, err := st.NextRevocation(s.ctx, 0); e != nil || at != 0 || err != nil {
		t.Fatalf("an empty log: %v, %d, %v", e, at, err)
	}
	want := []*provisioner.Revocation{revocation("a", ofToken), revocation("b", nil), revocation("c", ofRetired), revocation("d", nil)}
	for i, e := range want {
		if at, err := st.AppendRevocation(s.ctx, e); err != nil || at != provisioner.Sequence(i+1) {
			t.Fatalf("append %d: %d, %v", i, at, err)
		}
	}
	// Once more, as after an acknowledgement that was lost.
	if at, err := st.AppendRevocation(s.ctx, want[1]); err != nil || at != 2 {
		t.Errorf("append again: %d, %v, want its place", at, err)
	}
	var got []*provisioner.Revocation
	for at := provisioner.Sequence(0); ; {
		e, next, err := st.NextRevocation(s.ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		if next != at+1 {
			t.Errorf("%d follows %d", next, at)
		}
		got, at = append(got, e), next
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	stream, err := s.js.Stream(s.ctx, "MUSTER_REVOCATIONS")
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"deleted": stream.DeleteMsg(s.ctx, 1), "erased": stream.SecureDeleteMsg(s.ctx, 2), "purged": stream.Purge(s.ctx),
	} {
		if err == nil {
			t.Errorf("an entry was %s", name)
		}
	}
	again := s.open(t, ours)
	if e, _, err := again.NextRevocation(s.ctx, 0); err != nil || e == nil || e.ID != "a" {
		t.Errorf("after opening again: %v, %v", e, err)
	}
}

// TestEntriesThatAreNotUnderstoodStopTheLog expects an error, at every look,
// rather than to go on behind an entry that could be about anybody.
func TestEntriesThatAreNotUnderstoodStopTheLog(t *testing.T) {
	t.Parallel()
	node := "muster.revocation.node." + web1.SubjectToken()
	for name, tt := range map[string]struct {
		subject string
		data    any
	}{
		"no JSON":                   {node, "x"},
		"another schema":            {node, revocation("a", func(r *provisioner.Revocation) { r.Schema = 2 })},
		"another kind":              {node, revocation("a", func(r *provisioner.Revocation) { r.Kind = "site" })},
		"no id":                     {node, revocation("", nil)},
		"no identity":               {node, revocation("a", func(r *provisioner.Revocation) { r.Node = "" })},
		"no token":                  {"muster.revocation.token.x", revocation("a", func(r *provisioner.Revocation) { ofToken(r); r.Token = "x" })},
		"a serial that is none":     {node, revocation("a", func(r *provisioner.Revocation) { r.Certificates[0].Serial = "5B" })},
		"a retirement of keys":      {node, revocation("a", func(r *provisioner.Revocation) { r.Kind = provisioner.RetiredNode })},
		"an entry of another node":  {"muster.revocation.node." + web2.SubjectToken(), revocation("a", nil)},
		"an entry of another token": {"muster.revocation.token.ff", revocation("a", ofToken)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, s := newStore(t)
			b, err := json.Marshal(tt.data)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.js.Publish(s.ctx, tt.subject, b); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if e, at, err := st.NextRevocation(s.ctx, 0); err == nil || e != nil || at != 0 {
					t.Errorf("NextRevocation = %v, %d, %v", e, at, err)
				}
			}
		})
	}
}

func signerEntry(t *testing.T, name string) *provisioner.SignerEntry {
	t.Helper()
	pub, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	id, err := jwt.Fingerprint(pub)
	if err != nil {
		t.Fatal(err)
	}
	return &provisioner.SignerEntry{Schema: provisioner.SignerSchema, ID: id, Name: name, Key: der, Sites: []jwt.Site{"ams1"},
		Identities: []wire.Pattern{"*.example.net"}, By: "operator", At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// TestCRLNumbersAreNobodysTwice has eight writers make the next CRL at once, ten
// times: each number goes to one of them.
func TestCRLNumbersAreNobodysTwice(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	if c, at, err := st.CRL(s.ctx, "aa", 0); c != nil || at != 0 || err != nil {
		t.Fatalf("CRL of an empty store: %v, %d, %v", c, at, err)
	}
	var mu sync.Mutex
	won := map[uint64]string{}
	var after provisioner.Revision
	for number := uint64(1); number <= 10; number++ {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				der := fmt.Sprintf("%d by %d", number, i)
				_, err := st.PutCRL(s.ctx, &provisioner.CRL{Schema: provisioner.CRLSchema, Issuer: "aa", Number: number, DER: []byte(der)}, after)
				if err != nil && !errors.Is(err, provisioner.ErrConflict) {
					t.Errorf("PutCRL = %v", err)
				}
				if err == nil {
					mu.Lock()
					defer mu.Unlock()
					if other, twice := won[number]; twice {
						t.Errorf("number %d went to %s and to %s", number, other, der)
					}
					won[number] = der
				}
			})
		}
		wg.Wait()
		c, at, err := st.CRL(s.ctx, "aa", after)
		if err != nil || c == nil || c.Number != number || string(c.DER) != won[number] || at <= after {
			t.Fatalf("CRL after %d = %+v, %d, %v; want number %d by %s", after, c, at, err, number, won[number])
		}
		after = at
		if c, at, err := st.CRL(s.ctx, "aa", after); c != nil || at != 0 || err != nil {
			t.Errorf("CRL after the newest: %v, %d, %v", c, at, err)
		}
	}
	if c, _, err := st.CRL(s.ctx, "bb", 0); c != nil || err != nil {
		t.Errorf("CRL of another issuer: %v, %v", c, err)
	}
}

// TestALargeCRLFits writes and reads the longest list that a provisioner of before has in
// its store: now it would get the signature alone.
func TestALargeCRLFits(t *testing.T) {
	t.Parallel()
	const longest = 11 << 19
	st, s := newStore(t)
	c := &provisioner.CRL{Schema: provisioner.CRLSchema, Issuer: strings.Repeat("a", 40), Number: 1 << 62, DER: make([]byte, longest)}
	if _, err := st.PutCRL(s.ctx, c, 0); err != nil {
		t.Fatal(err)
	}
	if got, _, err := st.CRL(s.ctx, c.Issuer, 0); err != nil || len(got.DER) != longest {
		t.Errorf("CRL: %v", err)
	}
}

func TestCertificatesOfAHistory(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	r := record(web1, "a1")
	at := put(t, s, st, r, 0)
	second := *r.Next
	second.Serial = "5b20"
	next := *r
	next.Attempt, next.State, next.Current, next.Next = "a2", provisioner.StateProvisioned, r.Next, &second
	at = put(t, s, st, &next, at)
	last := next
	last.Attempt, last.Current, last.Next = "a3", &second, nil
	put(t, s, st, &last, at)
	put(t, s, st, record(web2, "a1"), 0)
	list, err := st.Certificates(s.ctx, web1)
	if err != nil {
		t.Fatal(err)
	}
	var serials []string
	for _, i := range list {
		serials = append(serials, i.Serial)
	}
	if diff := cmp.Diff([]string{r.Next.Serial, "5b20"}, serials); diff != "" {
		t.Errorf("certificates (-want +got):\n%s", diff)
	}
	if list, err := st.Certificates(s.ctx, "never.example.net"); err != nil || len(list) > 0 {
		t.Errorf("of a stranger: %v, %v", list, err)
	}
}

var _ provisioner.Store = (*store.Store)(nil)
