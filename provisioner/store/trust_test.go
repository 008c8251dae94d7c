package store_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/store"
	"muster/provisioner/trust"
)

func revocation(id string, edit func(*trust.Revocation)) *trust.Revocation {
	r := &trust.Revocation{
		Schema: trust.RevocationSchema, ID: id, Kind: trust.RevokedNode,
		At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
		By: "operator", Why: "stolen", Node: web1, Keys: []string{"k1"},
		Certificates: []trust.RevokedCertificate{{Serial: "5b1f",
			NotAfter: time.Date(2026, 4, 1, 12, 0, 0, 0, time.UTC), Issuer: "aa"}},
	}
	if edit != nil {
		edit(r)
	}
	return r
}

const tid = jwt.TokenID("00112233445566778899aabbccddeeff")

func ofToken(r *trust.Revocation) {
	r.Kind, r.Node, r.Keys, r.Certificates, r.Token = trust.RevokedToken, "", nil, nil, tid
}

func ofRetired(r *trust.Revocation) { r.Kind, r.Keys = trust.RetiredNode, nil }

// revoke writes the newest entry about its node.
func revoke(t *testing.T, s *site, st *store.Store, e *trust.Revocation) {
	t.Helper()
	r := trust.NewRevocations(trust.RevocationsConfig{Log: st.Logs().Revocations})
	_, newest := r.About(e.Node)
	if err := r.Put(s.ctx, e, newest); err != nil {
		t.Fatal(err)
	}
}

// TestRevocationNamesTheNewestEntryOfItsNode writes entries about one node under old revisions; entries about other
// nodes do not matter.
func TestRevocationNamesTheNewestEntryOfItsNode(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	log := st.Logs().Revocations
	other := revocation("other", func(r *trust.Revocation) { r.Node = web2 })
	for i, tt := range []struct {
		e        *trust.Revocation
		expected trust.Revision
		want     error
	}{
		{revocation("a", nil), 0, nil}, // 1
		{revocation("late", nil), 0, trust.ErrConflict},
		{other, 1, trust.ErrConflict},
		{other, 0, nil}, // 2
		{revocation("b", ofRetired), 1, nil},
		{revocation("late", nil), 1, trust.ErrConflict},
		{revocation("t", ofToken), 0, nil},
		{revocation("u", ofToken), 0, trust.ErrConflict},
	} {
		if _, err := log.Put(s.ctx, tt.e.LogKey(), tt.e, tt.expected); !errors.Is(err, tt.want) {
			t.Errorf("%d: Put = %v, want %v", i, err, tt.want)
		}
	}
	stream, err := s.js.Stream(s.ctx, "MUSTER_REVOCATIONS")
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"deleted": stream.DeleteMsg(s.ctx, 1), "erased": stream.SecureDeleteMsg(s.ctx, 2),
		"purged": stream.Purge(s.ctx),
	} {
		if err == nil {
			t.Errorf("an entry was %s", name)
		}
	}
	r := trust.NewRevocations(trust.RevocationsConfig{Log: s.open(t, ours).Logs().Revocations})
	if e, at := r.About(web1); e == nil || e.ID != "b" || at != 3 || r.Token(tid) == nil {
		t.Errorf("after opening again: %+v at %d", e, at)
	}
}

// TestUnreadableRevocationIsReported writes an entry of another version, which could be about any node.
func TestUnreadableRevocationIsReported(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	r := trust.NewRevocations(trust.RevocationsConfig{Log: st.Logs().Revocations})
	b, err := json.Marshal(revocation("a", func(r *trust.Revocation) { r.Schema = 2 }))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); err != nil {
		t.Errorf("without one: %v", err)
	}
	if _, err := s.js.Publish(s.ctx, "muster.revocation.node."+web1.SubjectToken()+".a", b); err != nil {
		t.Fatal(err)
	}
	if err := st.Logs().Sync(s.ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.Err(); !errors.Is(err, trust.ErrUnread) {
		t.Errorf("Err = %v, want %v", err, trust.ErrUnread)
	}
}

func signerEntry(t *testing.T, name string) *trust.SignerEntry {
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
	return &trust.SignerEntry{Schema: trust.SignerSchema, Entry: "e", ID: id, Name: name, Key: der,
		Sites:      []jwt.Site{"ams1"},
		Identities: []wire.Pattern{"*.example.net"}, By: "operator", At: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

var _ provisioner.Store = (*store.Store)(nil)
