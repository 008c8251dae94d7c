package provisioner

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"testing"
	"time"

	"muster/jwt"
)

// shownSigners is a log of signers in memory.
type shownSigners struct {
	entries []*SignerEntry
}

func (l *shownSigners) NextSigner(_ context.Context, after Sequence) (*SignerEntry, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *shownSigners) PutSigner(context.Context, *SignerEntry, Revision) (Revision, error) {
	return 0, errors.New("not needed")
}

// signerEntry returns one that adds a signer with a key of its own.
func signerEntry(t *testing.T, name string) *SignerEntry {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := jwt.MarshalPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	e, err := (&NewSigner{Public: b, Name: name}).entry()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// brokenOff is a log of signers of which a read fails once, after an entry.
type brokenOff struct {
	shownSigners
	failAt Sequence // the read after this place fails, once
}

func (l *brokenOff) NextSigner(ctx context.Context, after Sequence) (*SignerEntry, Sequence, error) {
	if after == l.failAt && after > 0 {
		l.failAt = 0
		return nil, 0, context.DeadlineExceeded
	}
	return l.shownSigners.NextSigner(ctx, after)
}

// TestASignerIsRemovedByALookThatBreaksOff has the read that follows a removal
// fail: what was read before it must count from the next look on.
func TestASignerIsRemovedByALookThatBreaksOff(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := jwt.MarshalPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	stolen, err := (&NewSigner{Public: b, Name: "stolen"}).entry()
	if err != nil {
		t.Fatal(err)
	}
	token, err := jwt.Sign(private, jwt.Claims{Brokers: "nats://127.0.0.1:4222", Default: true, Organization: "choria", Purpose: jwt.Purpose, Issuer: "test", Subject: jwt.Purpose, JTI: jwt.NewJTI(), ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	log := &brokenOff{shownSigners: shownSigners{entries: []*SignerEntry{stolen, signerEntry(t, "other")}}}
	s, err := NewSigners(SignersConfig{Store: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.VerifyFrom(token, nil); err != nil {
		t.Fatalf("token of a signer that counts: %v", err)
	}
	log.entries = append(log.entries, &SignerEntry{Schema: SignerSchema, ID: stolen.ID, Removed: true, By: "a", At: time.Now()})
	log.failAt = 3
	if err := s.look(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("look of which a read fails = %v", err)
	}
	for range 3 {
		if err := s.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Fresh(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.VerifyFrom(token, nil); err == nil {
		t.Error("a token of a signer that was removed is good")
	}
}

// keptSigners is a log of signers that takes all.
type keptSigners struct{ shownSigners }

func (l *keptSigners) PutSigner(_ context.Context, e *SignerEntry, _ Revision) (Revision, error) {
	l.entries = append(l.entries, e)
	return Revision(len(l.entries)), nil
}

// TestASignerThatNeverBegins adds the certificate of a signer that ends before it
// begins: whoever signs already goes on.
func TestASignerThatNeverBegins(t *testing.T) {
	t.Parallel()
	log := &keptSigners{shownSigners{entries: []*SignerEntry{signerEntry(t, "good")}}}
	s, err := NewSigners(SignersConfig{Store: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "odd"}, NotBefore: now, NotAfter: now.Add(-time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	p := &Provisioner{cfg: Config{Signers: s, Now: time.Now, Emit: func(Event) {}, Log: slog.New(slog.DiscardHandler)}}
	_, err = p.AddSigner(t.Context(), NewSigner{Public: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}, Cause{By: "anna"})
	if err == nil {
		t.Error("a signer that is good at no time was added")
	}
	if err := s.look(t.Context()); err != nil || s.verifier.Load() == nil {
		t.Errorf("nobody is trusted any more, on any provisioner, and after any start: %v", err)
	}
}

// TestTwoSignersOfOneName has another provisioner give a signer the name that is asked for
// here, a moment before and since the last look: policies could not tell the two apart.
func TestTwoSignersOfOneName(t *testing.T) {
	t.Parallel()
	log := &keptSigners{shownSigners{entries: []*SignerEntry{signerEntry(t, "site ams1")}}}
	s, err := NewSigners(SignersConfig{Store: log})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &Provisioner{cfg: Config{Signers: s, Now: time.Now, Emit: func(Event) {}, Log: slog.New(slog.DiscardHandler)}}
	add := func(name string) error {
		public, _, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		b, err := jwt.MarshalPublicKey(public)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.AddSigner(t.Context(), NewSigner{Public: b, Name: name}, Cause{By: "anna"})
		return err
	}
	log.entries = append(log.entries, signerEntry(t, "site fra1")) // by another provisioner
	for _, name := range []string{"site ams1", "site fra1"} {
		if err := add(name); !errors.Is(err, ErrState) {
			t.Errorf("a second signer %q: %v, want %v", name, err, ErrState)
		}
	}
	if err := add("site lhr1"); err != nil || len(log.entries) != 3 {
		t.Errorf("one with a name of its own: %v; %d entries, want 3", err, len(log.entries))
	}
}
