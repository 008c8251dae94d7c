package trust_test

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster/provisioner/ca"
	"muster/provisioner/trust"
)

// slowKey signs slowly, like a long list.
type slowKey struct {
	crypto.Signer
	signed *atomic.Int64
}

func (s slowKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	s.signed.Add(1)
	<-time.After(3 * time.Second)
	return s.Signer.Sign(r, digest, opts)
}

// TestLongCRLTakesNoCore retires nodes all the time while their CRL takes three seconds to sign: one CRL lists many
// retirements.
func TestLongCRLTakesNoCore(t *testing.T) {
	t.Parallel()
	g, err := ca.Generate("fleet.test", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var signed atomic.Int64
	key := slowKey{g.IssuingKey, &signed}
	synctest.Test(t, func(t *testing.T) {
		year := func() time.Time {
			return g.Issuing.NotBefore.Add(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
		}
		a, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: key, TrustDomain: "fleet.test", Now: year})
		if err != nil {
			t.Fatal(err)
		}
		signed.Store(0)
		r := trust.NewRevocations(trust.RevocationsConfig{Log: &memoryLog[*trust.Revocation]{}})
		behind := errors.New("clock is behind")
		clock := behind
		crls := trust.NewCRLs(trust.CRLConfig{
			Authority:   a,
			Revocations: r,
			Validity:    24 * time.Hour,
			Publish:     func(context.Context, []*trust.CRL) bool { return true },
			Clock:       func() error { return clock },
			Log:         slog.New(slog.DiscardHandler),
			Now:         year,
		})
		if err := crls.Update(t.Context()); !errors.Is(err, behind) || crls.Newest() != nil {
			t.Errorf("Update = %v, want %v and no CRL", err, behind)
		}
		clock = nil
		began := time.Now()
		for i := 0; time.Since(began) < 5*time.Minute; i++ {
			e := nodeEntry(fmt.Sprint("e", i), trust.RetiredNode, fmt.Sprintf("%x", i+1), "")
			e.At, e.Certificates[0].Issuer, e.Certificates[0].NotAfter = year(), a.IssuerKeyID(), year().Add(time.Hour)
			_, newest := r.About(e.Node)
			if err := errors.Join(r.Put(t.Context(), e, newest), crls.Update(t.Context())); err != nil {
				t.Fatal(err)
			}
			<-time.After(400 * time.Millisecond)
		}
		if n := signed.Load(); n > 11 || n < 5 {
			t.Errorf("signed %d times in five minutes, three seconds each", n)
		}
	})
}
