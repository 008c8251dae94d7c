package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"muster/provisioner/ca"
	"muster/provisioner/events"
)

// Bounds of a CRL's validity.
const (
	DefaultCRLValidity = 24 * time.Hour
	MinCRLValidity     = 10 * time.Minute
	MaxCRLValidity     = 30 * 24 * time.Hour
)

const (
	// crlEvery is how often it is looked whether another CRL is due. What is
	// revoked between two looks shares one.
	crlEvery = 400 * time.Millisecond

	// MaxCRLBytes bounds a CRL, which is signed, kept and handed out in one piece. It is room
	// for 1.35 million retired or 1.8 million revoked certificates that have not expired.
	MaxCRLBytes = 64 << 20

	// maxListed is how long a list may be that the store gets as a whole, of 1,300 retired
	// certificates. Of a longer one it gets the signature: the broker takes no message above
	// 8 MB and keeps 64 of them, in the room that is held back for revocations.
	maxListed = 64 << 10

	// crlSkew is how far two provisioners' clocks may be apart before the CRL of
	// one is taken by the other for one from before its clock went back. Lists are dated
	// back by as much, as certificates are: who reads one that is not valid yet, as nginx
	// does, refuses everybody.
	crlSkew = 5 * time.Minute
)

// crlLoop is what the keeper of CRLs remembers.
type crlLoop struct {
	known  map[string]*newestCRL  // by issuer; only touched by updateCRLs
	all    atomic.Pointer[[]*CRL] // what known has of those that are signed now
	failed bool                   // only touched by keepCRLs

	// unlisted: who is to have all has not got them. Only touched by updateCRLs.
	unlisted bool
}

// newestCRL is the newest CRL of one issuer.
type newestCRL struct {
	crl      *CRL // the store's; nil if none is known yet, without DER if the log does not make it
	served   *CRL // the newest with DER: crl, but where that has none
	revision Revision

	// again is when the next one may be signed, and failed why the last one was not. A
	// long list takes seconds of a core, and it would be signed for every change of it.
	again  time.Time // monotonic
	failed error
}

// crlShare is one over the part of a core that signing the CRLs of one issuer may take;
// chosen. What is revoked is listed within a second while that many take less than a tenth.
const crlShare = 10

// CRL returns the newest CRL of the issuer that issues, nil before
// [Provisioner.CatchUp], or if there was none and the clock is behind. It is
// never changed.
func (p *Provisioner) CRL() *CRL {
	if all := p.crls.all.Load(); all != nil && len(*all) > 0 && (*all)[0].Issuer == p.cfg.Authority.IssuerKeyID() {
		return (*all)[0]
	}
	return nil
}

// CRLs returns the newest CRL of each issuer that signs some: the present one,
// and then previous ones that have their keys and have not expired, the newest
// first. It is empty before [Provisioner.CatchUp]. The list is the caller's, a CRL
// in it is never changed.
func (p *Provisioner) CRLs() []*CRL {
	if all := p.crls.all.Load(); all != nil {
		return slices.Clone(*all)
	}
	return nil
}

// keepCRLs is updateCRLs for Run.
func (p *Provisioner) keepCRLs(ctx context.Context) {
	err := p.updateCRLs(ctx)
	if ctx.Err() != nil {
		return
	}
	if err != nil && !p.crls.failed {
		p.cfg.Log.ErrorContext(ctx, "CRL not brought up to date, the one before stays in use until it lapses", "err", err)
	}
	switch {
	case err == nil:
		p.cfg.Alarms.Clear(ctx, events.AlarmCRLTooLong)
	case errors.Is(err, errCRLTooLong):
		p.cfg.Alarms.Raise(ctx, events.AlarmCRLTooLong, err)
	}
	if err == nil && p.crls.failed {
		p.cfg.Log.InfoContext(ctx, "CRL is up to date again", "number", p.CRL().Number)
	}
	p.crls.failed = err != nil
}

// updateCRLs brings the CRL of each issuer up to date, the present one's first.
// What goes wrong with one holds up none of the others. It is not to be called by
// two at once; calling it again changes nothing unless a CRL is due.
func (p *Provisioner) updateCRLs(ctx context.Context) error {
	if p.crls.known == nil {
		p.crls.known = map[string]*newestCRL{}
	}
	issuers := p.cfg.Authority.CRLIssuers()
	before := p.CRLs()
	var errs []error
	for _, issuer := range issuers {
		if p.crls.known[issuer] == nil {
			p.crls.known[issuer] = &newestCRL{}
		}
		if err := p.updateCRL(ctx, issuer); err != nil {
			errs = append(errs, fmt.Errorf("of issuer %s: %w", issuer, err))
		}
		p.showCRLs(issuers)
	}
	// Only when there is one of each: whoever keeps them in one file has one in
	// which none is missing, also after a start at which the store did not answer.
	now := p.CRLs()
	p.crls.unlisted = p.crls.unlisted || !slices.Equal(before, now)
	if len(now) == len(issuers) && p.crls.unlisted {
		p.crls.unlisted = !p.cfg.Listed(ctx, now)
	}
	return errors.Join(errs...)
}

// showCRLs makes what is known of the issuers what others see.
func (p *Provisioner) showCRLs(issuers []string) {
	var all []*CRL
	for _, issuer := range issuers {
		if k := p.crls.known[issuer]; k != nil && k.served != nil {
			all = append(all, k.served)
		}
	}
	p.crls.all.Store(&all)
}

// updateCRL takes the newest CRL of an issuer from the store, and signs the next
// one if that is due: something was revoked since, or half of its validity has
// passed.
//
// All provisioners share one sequence of numbers per issuer (RFC 5280 section
// 5.2.3): a CRL is nobody's before the store has it, under compare-and-set on the
// one before. Of two that sign at once one is told so and takes the other's.
//
// The error wraps [ErrClock] while one is due and the clock is behind: a CRL
// from the past would take the place of a good one, and may have lapsed already
// for everybody else.
func (p *Provisioner) updateCRL(ctx context.Context, issuer string) error {
	known := p.crls.known[issuer]
	for range maxRounds {
		newest, revision, err := p.readCRL(ctx, issuer, known.revision)
		if err != nil {
			return err
		}
		if newest != nil {
			if err := p.rebuildCRL(ctx, newest); err != nil {
				return err
			}
			p.list(ctx, known, newest, revision)
		}
		if !p.crlDue(issuer) {
			return nil
		}
		if time.Now().Before(known.again) {
			return known.failed
		}
		if err := p.cfg.Clock.Check(); err != nil {
			return err
		}
		// The log is read after the CRL that is to be followed: nothing that one
		// covers is missing then, unless it is missing from the log.
		if err := p.lookForCRL(ctx); err != nil {
			return err
		}
		if !p.crlDue(issuer) {
			return nil
		}
		began := time.Now()
		next, err := p.signCRL(issuer)
		known.again, known.failed = time.Now().Add(crlShare*time.Since(began)), err
		if err != nil {
			return err
		}
		revision, err = p.putCRL(ctx, next, known.revision)
		switch {
		case err == nil:
			p.list(ctx, known, next, revision)
			return nil
		case errors.Is(err, ErrConflict):
			known.again = time.Time{} // what is to be followed now is another's
		default:
			// It may be written or not. The next round finds it or signs again.
			known.failed = err
			return err
		}
	}
	return errAgain
}

// readCRL, putCRL and lookForCRL bound what a store may take that does not answer, each by
// itself: between them a long list is signed, which takes longer than that.
func (p *Provisioner) readCRL(ctx context.Context, issuer string, after Revision) (*CRL, Revision, error) {
	bounded, cancel := context.WithTimeout(ctx, enforceTimeout)
	defer cancel()
	return p.cfg.Store.CRL(bounded, issuer, after)
}

func (p *Provisioner) putCRL(ctx context.Context, c *CRL, after Revision) (Revision, error) {
	bounded, cancel := context.WithTimeout(ctx, enforceTimeout)
	defer cancel()
	return p.cfg.Store.PutCRL(bounded, c.stored(), after)
}

func (p *Provisioner) lookForCRL(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, enforceTimeout)
	defer cancel()
	return p.revocations.look(bounded)
}

// list makes a CRL that the store has the newest of its issuer's here.
func (p *Provisioner) list(ctx context.Context, known *newestCRL, c *CRL, revision Revision) {
	known.crl, known.revision = c, revision
	if c.DER == nil {
		return
	}
	known.served = c
	p.cfg.Log.InfoContext(ctx, "CRL listed", "issuer", c.Issuer, "number", c.Number, "revision", uint64(c.Through), "until", c.NextUpdate)
}

// crlDue reports whether the issuer's newest CRL must be followed by another.
func (p *Provisioner) crlDue(issuer string) bool {
	c, now := p.crls.known[issuer].crl, p.now()
	if c == nil || c.DER == nil {
		return true
	}
	// A log that ends before what the CRL covers was made anew, from journals;
	// or it has not been looked at lately, which the caller mends.
	if newest, through := p.revocations.newestOf(issuer); newest > c.Through || through < c.Through {
		return true
	}
	half := c.ThisUpdate.Add(min(c.NextUpdate.Sub(c.ThisUpdate), p.cfg.CRLValidity) / 2)
	// One from the future is not valid for anybody else: our clock went back.
	return !now.Before(half) || c.ThisUpdate.After(now.Add(crlSkew))
}

// signCRL signs the CRL after the issuer's newest.
func (p *Provisioner) signCRL(issuer string) (*CRL, error) {
	before, now := p.crls.known[issuer].crl, p.now()
	_, through := p.revocations.newestOf(issuer)
	// An entry stays until a CRL was issued beyond its certificate's validity
	// with it (RFC 5280 section 3.3), so that nobody who checks an old signature
	// misses it. All that is over by the last issue has been on one.
	since := now
	if before != nil && before.ThisUpdate.Before(now) {
		since = before.ThisUpdate
	}
	// The time, in milliseconds and thus faster than CRLs are made, keeps numbers
	// growing where a store from a backup would give them out again.
	next := &CRL{
		Schema: CRLSchema, Issuer: issuer, Number: uint64(max(p.cfg.Now().UnixMilli(), 1)),
		ThisUpdate: now, NextUpdate: now.Add(p.cfg.CRLValidity), Through: through,
	}
	if before != nil {
		next.Number = max(next.Number, before.Number+1)
	}
	n, most := 0, cmp.Or(p.cfg.MaxCRL, MaxCRLBytes)
	var err error
	if next.DER, n, err = p.signSince(next, since); err != nil {
		return nil, err
	}
	if len(next.DER) > most && since.Before(now) {
		// Better without those that have ended than never another one: they would stay until
		// there is one, however many they are.
		since = now
		if next.DER, n, err = p.signSince(next, since); err != nil {
			return nil, err
		}
	}
	if len(next.DER) > most {
		return nil, fmt.Errorf("%w: %d bytes with %d certificates that have not ended, limit %d", errCRLTooLong, len(next.DER), n, most)
	}
	if len(next.DER) > maxListed {
		next.Schema, next.Since = CRLSchemaUnlisted, since
		if next.Signature, err = ca.CRLSignature(next.DER); err != nil {
			return nil, err
		}
	}
	return next, nil
}

// signSince returns the signed list of a CRL, and how many certificates are on it.
func (p *Provisioner) signSince(c *CRL, since time.Time) (der []byte, n int, err error) {
	request := p.crlRequest(c, since)
	der, err = p.cfg.Authority.SignCRL(c.Issuer, request)
	return der, len(request.Revoked), err
}

// errCRLTooLong means that there is no next CRL before certificates on it have ended.
var errCRLTooLong = errors.New("CRL is too long")

// crlRequest asks for what a CRL has: all certificates of its issuer that the log says are
// revoked, up to the place that the CRL covers, but for those that had ended before since.
// Nothing else may have a part in it: others make the same of the same log (rebuildCRL).
func (p *Provisioner) crlRequest(c *CRL, since time.Time) ca.CRLRequest {
	request := ca.CRLRequest{Number: c.Number, ThisUpdate: c.ThisUpdate.Add(-crlSkew), NextUpdate: c.NextUpdate}
	for _, r := range p.revocations.certificates(c.Issuer) {
		if r.by.at > c.Through {
			break // the log is being read
		}
		if r.NotAfter.Before(since) {
			continue
		}
		revoked := ca.Revoked{Serial: r.Serial, At: r.by.At}
		if r.by.Kind == RetiredNode {
			revoked.Reason = ca.ReasonCessation
		}
		request.Revoked = append(request.Revoked, revoked)
	}
	return request
}

// rebuildCRL makes the list of a CRL of which the store has the signature. Where the log does
// not make it, since it was made anew from journals, say, or another version of muster lists
// otherwise, the CRL stays without: it is followed by another one at once.
func (p *Provisioner) rebuildCRL(ctx context.Context, c *CRL) error {
	if c.Schema == CRLSchema {
		return nil
	}
	if _, through := p.revocations.newestOf(c.Issuer); through < c.Through {
		if err := p.lookForCRL(ctx); err != nil {
			return err
		}
	}
	der, err := p.cfg.Authority.RebuildCRL(c.Issuer, p.crlRequest(c, c.Since), c.Signature)
	if err != nil {
		p.cfg.Log.WarnContext(ctx, "CRL cannot be made from the revocations: another one follows", "issuer", c.Issuer, "number", c.Number, "err", err)
		return nil
	}
	c.DER = der
	return nil
}
