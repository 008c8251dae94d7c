package provisioner

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

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/provisioner/events"
)

// farLog is a log of claims of which each entry takes its way.
type farLog struct {
	*memory
	way time.Duration
}

func (f farLog) Claims(ctx context.Context, tid jwt.TokenID, after Revision, each func(*ClaimEntry, Revision) error) error {
	return f.memory.Claims(ctx, tid, after, func(e *ClaimEntry, at Revision) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(f.way):
		}
		return each(e, at)
	})
}

// TestALongLogIsReadInTheEnd has a process that has just started claim a use of a token
// that has thousands, at a store that is far. No single request has the time to read
// all of them.
func TestALongLogIsReadInTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, token := &memory{}, &TokenInfo{ID: "t", Uses: 1 << 20}
		for i := range 5000 {
			m.log = append(m.log, &ClaimEntry{Schema: ClaimSchema, Claims: []TokenClaim{*claimOf(i, token).claim}})
		}
		log := farLog{m, 10 * time.Millisecond}
		s := newLedgers(log, slog.New(slog.DiscardHandler), time.Now)
		var err error
		for range 4 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			err = s.post(ctx, claimOf(-1, token))
			cancel()
			if err == nil {
				break
			}
		}
		if err != nil || len(m.log) != 5001 {
			t.Errorf("after two minutes: %v, %d entries, want one more than 5000", err, len(m.log))
		}
	})
}

// slowRecords is a store of which each record takes its time, and has none.
type slowRecords struct {
	Store
	read atomic.Int64
}

func (s *slowRecords) Record(context.Context, wire.Identity) (*Record, Revision, error) {
	<-time.After(10 * time.Millisecond)
	s.read.Add(1)
	return nil, 0, nil
}

// retirements are so many entries about machines that are gone.
func retirements(n int) []*Revocation {
	all := make([]*Revocation, n)
	for i := range all {
		all[i] = &Revocation{Schema: RevocationSchema, ID: fmt.Sprint("r", i), Kind: RetiredNode, By: "operator", Node: wire.Identity(fmt.Sprintf("old%d.example.net", i)),
			Certificates: []RevokedCertificate{{Serial: fmt.Sprintf("%x", i+1), Issuer: "aa"}}}
	}
	return all
}

// TestWhoIsRevokedRightAfterAStartIsDropped revokes a node elsewhere while a process that
// has just started goes through what was there before.
func TestWhoIsRevokedRightAfterAStartIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const before = 5000
		log := &shownLog{entries: retirements(before)}
		r := newRevocations(log, nil, slog.New(slog.DiscardHandler))
		store, kicked := &slowRecords{}, make(chan time.Time, 1)
		p := &Provisioner{revocations: r, cfg: Config{Store: store, Log: slog.New(slog.DiscardHandler), Kick: func(_ context.Context, ids ...wire.Identity) {
			if len(ids) == 1 && ids[0] == web1 {
				kicked <- time.Now()
			}
		}}}
		if err := r.restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = every(ctx, LookEvery, p.enforceAll) }()
		<-time.After(time.Second)
		log.entries = append(log.entries, nodeEntry("s", RevokedNode, "ff", "k"))
		if err := r.look(ctx); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if took := (<-kicked).Sub(began); took > time.Second {
			t.Errorf("dropped after %v, want a second", took)
		}
		for store.read.Load() <= before {
			<-time.After(LookEvery)
		}
		cancel()
		synctest.Wait()
	})
}

// countedLog counts questions.
type countedLog struct {
	shownLog
	asked int
	way   time.Duration // to the store and back
}

func (c *countedLog) NextRevocation(ctx context.Context, after Sequence) (*Revocation, Sequence, error) {
	c.asked++
	<-time.After(c.way)
	return c.shownLog.NextRevocation(ctx, after)
}

// TestAStartAsksForAllAtOnce reads a long log of revocations.
func TestAStartAsksForAllAtOnce(t *testing.T) {
	t.Parallel()
	c := &countedLog{shownLog: shownLog{entries: retirements(1000)}}
	r := newRevocations(c, nil, slog.New(slog.DiscardHandler))
	if err := r.restore(t.Context()); err != nil || r.Serial("3e8") == nil || r.Fresh() != nil {
		t.Errorf("restore = %v, the last one %v, fresh %v", err, r.Serial("3e8"), r.Fresh())
	}
	if c.asked > 2 {
		t.Errorf("%d questions for 1000 entries", c.asked)
	}
}

// TestAWaveIsReadAtOnce has another provisioner revoke many, while the way to the store takes
// 50 ms: this one goes on admitting those who are not among them.
func TestAWaveIsReadAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := &countedLog{way: 50 * time.Millisecond}
		r := newRevocations(c, nil, slog.New(slog.DiscardHandler))
		if err := r.restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.entries, c.asked = retirements(10_000), 0
		if err := r.look(t.Context()); err != nil || r.Serial("2710") == nil || r.Fresh() != nil {
			t.Errorf("look = %v, the last one %v, fresh %v, after %d questions", err, r.Serial("2710"), r.Fresh(), c.asked)
		}
		c.entries, c.asked = append(c.entries, nodeEntry("one", RevokedNode, "ff", "k")), 0
		if err := r.look(t.Context()); err != nil || r.Serial("ff") == nil || c.asked > 2 {
			t.Errorf("look = %v with %d questions for one entry: %v", err, c.asked, r.Serial("ff"))
		}
	})
}

// TestNobodyWaitsForACopyOfAllThatIsRevoked: who asks holds up those who look.
func TestNobodyWaitsForACopyOfAllThatIsRevoked(t *testing.T) {
	r := newRevocations(nil, nil, slog.New(slog.DiscardHandler))
	for i, e := range retirements(10_000) {
		r.see(placed{e, Sequence(i + 1)})
	}
	if n := testing.AllocsPerRun(10, func() { r.certificates("aa") }); n > 0 {
		t.Errorf("%v allocations for the certificates of an issuer, want none", n)
	}
}

// BenchmarkPlaces gives as many entries their place as a journal may have that the store
// has not, and reports what each takes: it must not grow with their number.
func BenchmarkPlaces(b *testing.B) {
	for _, n := range []int{1000, 10_000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				r := newRevocations(nil, nil, slog.New(slog.DiscardHandler))
				all := retirements(n)
				for _, e := range all {
					r.pend(e)
				}
				b.StartTimer()
				for i, e := range all {
					r.see(placed{e, Sequence(i + 1)})
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/entry")
		})
	}
}

// slowKey signs slowly, as a long list is.
type slowKey struct {
	crypto.Signer
	signed *atomic.Int64
}

func (s slowKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	s.signed.Add(1)
	<-time.After(3 * time.Second)
	return s.Signer.Sign(r, digest, opts)
}

// crlStore has room for one CRL.
type crlStore struct {
	Store
	crl *CRL
	at  Revision
}

func (s *crlStore) CRL(_ context.Context, _ string, after Revision) (*CRL, Revision, error) {
	if s.at > after {
		return s.crl, s.at, nil
	}
	return nil, 0, nil
}

func (s *crlStore) PutCRL(_ context.Context, c *CRL, _ Revision) (Revision, error) {
	s.crl = c
	s.at++
	return s.at, nil
}

// TestALongCRLTakesNoCore has machines retired all the time whose CRL takes three seconds to
// sign: it is signed again and again, and not for each of them.
func TestALongCRLTakesNoCore(t *testing.T) {
	t.Parallel()
	g, err := ca.Generate(ca.GenerateConfig{TrustDomain: "fleet.test", Name: "fleet.test"})
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
		log, s := &shownLog{}, &crlStore{}
		p := &Provisioner{revocations: newRevocations(log, nil, slog.New(slog.DiscardHandler)), cfg: Config{
			Store: s, Authority: a, Now: year, CRLValidity: 24 * time.Hour,
			Log: slog.New(slog.DiscardHandler), Listed: func(context.Context, []*CRL) bool { return true },
		}}
		began := time.Now()
		for i := 0; time.Since(began) < 5*time.Minute; i++ {
			log.entries = append(log.entries, &Revocation{Schema: RevocationSchema, ID: fmt.Sprint(i), Kind: RetiredNode, At: year(), Node: web1,
				Certificates: []RevokedCertificate{{Serial: fmt.Sprintf("%x", i+1), Issuer: a.IssuerKeyID(), NotAfter: year().Add(time.Hour)}}})
			if err := errors.Join(p.revocations.look(t.Context()), p.updateCRLs(t.Context())); err != nil {
				t.Fatal(err)
			}
			<-time.After(crlEvery)
		}
		if n := signed.Load(); n > 11 || n < 5 {
			t.Errorf("signed %d times in five minutes, three seconds each", n)
		}
		if s.crl.Through < Sequence(len(log.entries))-100 {
			t.Errorf("the newest CRL goes to %d of %d", s.crl.Through, len(log.entries))
		}
	})
}

// patientKey takes three times as long as slowKey: longer than a store may.
type patientKey struct{ slowKey }

func (k patientKey) Sign(r io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	for range 2 {
		if _, err := k.slowKey.Sign(r, digest, opts); err != nil {
			return nil, err
		}
	}
	return k.slowKey.Sign(r, digest, opts)
}

// mortalCRLs is a store that writes nothing for who has given up.
type mortalCRLs struct{ crlStore }

func (s *mortalCRLs) PutCRL(ctx context.Context, c *CRL, after Revision) (Revision, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return s.crlStore.PutCRL(ctx, c, after)
}

// TestACRLThatTakesLongIsWritten signs one for nine seconds, as one of a million certificates is.
func TestACRLThatTakesLongIsWritten(t *testing.T) {
	t.Parallel()
	g, err := ca.Generate(ca.GenerateConfig{TrustDomain: "fleet.test", Name: "fleet.test"})
	if err != nil {
		t.Fatal(err)
	}
	key := patientKey{slowKey{g.IssuingKey, new(atomic.Int64)}}
	synctest.Test(t, func(t *testing.T) {
		year := func() time.Time {
			return g.Issuing.NotBefore.Add(time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
		}
		a, err := ca.New(ca.Config{Root: g.Root, Issuing: g.Issuing, Key: key, TrustDomain: "fleet.test", Now: year})
		if err != nil {
			t.Fatal(err)
		}
		log := slog.New(slog.DiscardHandler)
		p := &Provisioner{revocations: newRevocations(&shownLog{}, nil, log), cfg: Config{
			Store: &mortalCRLs{}, Authority: a, Now: year, CRLValidity: 24 * time.Hour, Alarms: events.NewAlarms(events.AlarmConfig{}), Log: log,
			Listed: func(context.Context, []*CRL) bool { return true },
		}}
		p.keepCRLs(t.Context())
		if p.CRL() == nil {
			t.Error("no CRL")
		}
	})
}
