package trust

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"muster/provisioner/ca"
)

// Bounds of a CRL's validity.
const (
	DefaultCRLValidity = 24 * time.Hour
	MinCRLValidity     = 10 * time.Minute
	MaxCRLValidity     = 30 * 24 * time.Hour
)

const (
	// crlSkew is how far lists are dated back, as certificates are: a reader whose clock is
	// behind takes a list that is not valid yet for none, and refuses every node.
	crlSkew = 5 * time.Minute

	// crlShare is one over the part of a core that signing the CRLs of one issuer may take. What
	// is revoked is listed within a second while that many take less than a tenth.
	crlShare = 10
)

// A CRL is a signed list of revoked certificates.
type CRL struct {
	Issuer     string    `json:"issuer"` // key identifier, lower-case hex
	Number     uint64    `json:"number"`
	DER        []byte    `json:"-"`
	ThisUpdate time.Time `json:"this_update"` // when it was signed; the list itself says crlSkew earlier
	NextUpdate time.Time `json:"next_update"`

	revoked int // how many certificates of the issuer were revoked
}

// CRLConfig configures [NewCRLs].
type CRLConfig struct {
	Authority   *ca.Authority // required
	Revocations *Revocations  // required

	// Validity is how long a CRL is valid: it is signed anew when half of that has passed.
	Validity time.Duration

	// Publish takes all CRLs, as [CRLs.All] returns them, whenever one of them is new. Calls come
	// one at a time; false has it called again soon.
	Publish func(context.Context, []*CRL) bool

	// Clock returns why the clock cannot be trusted: no CRL is signed meanwhile, since one from
	// the past would take the place of a good one.
	Clock func() error

	Log *slog.Logger
	Now func() time.Time
}

// CRLs are the CRLs that this process signs, one of each issuer whose key it has. Each
// provisioner signs its own from the same log: their numbers are the time of signing, in
// microseconds, and so those of one issuer grow (RFC 5280, section 5.2.3) wherever they are
// fetched, as far as clocks agree.
type CRLs struct {
	cfg     CRLConfig
	all     atomic.Pointer[[]*CRL]
	issuers map[string]*nextCRL // by issuer; only touched by Update

	// unlisted: Listed has not taken them. Only touched by Update.
	unpublished bool
}

// nextCRL is the newest CRL of one issuer, and when the next may be signed. A long list takes
// seconds of a core, and it would be signed for every change of it.
type nextCRL struct {
	newest    *CRL      // nil if there is none yet
	notBefore time.Time // monotonic
	failed    error     // why the last one was not signed
}

// NewCRLs returns CRLs of which none is signed yet.
func NewCRLs(cfg CRLConfig) *CRLs {
	return &CRLs{cfg: cfg, issuers: make(map[string]*nextCRL)}
}

// Newest returns the newest CRL of the issuer that issues, nil if there is none. It is never
// changed.
func (c *CRLs) Newest() *CRL {
	if all := c.all.Load(); all != nil && len(*all) > 0 && (*all)[0].Issuer == c.cfg.Authority.IssuerKeyID() {
		return (*all)[0]
	}
	return nil
}

// All returns the newest CRL of each issuer that signs some: the present one, and then previous
// ones that have their keys and have not expired, the newest first. The list is the caller's, a
// CRL in it is never changed.
func (c *CRLs) All() []*CRL {
	if all := c.all.Load(); all != nil {
		return slices.Clone(*all)
	}
	return nil
}

// Update signs the CRL of each issuer of which certificates were revoked since, or of whose CRL
// half of its time has passed, the present issuer's first. An error with one holds up none of the
// others. It is not to be called by two at once.
func (c *CRLs) Update(ctx context.Context) error {
	issuers := c.cfg.Authority.CRLIssuers()
	before := c.All()
	var errs []error
	var all []*CRL
	for _, issuer := range issuers {
		if c.issuers[issuer] == nil {
			c.issuers[issuer] = new(nextCRL)
		}
		if err := c.update(ctx, issuer); err != nil {
			errs = append(errs, fmt.Errorf("of issuer %s: %w", issuer, err))
		}
		if newest := c.issuers[issuer].newest; newest != nil {
			all = append(all, newest)
		}
	}
	c.all.Store(&all)
	// Only when there is one of each: in a file with all of them none is missing then.
	c.unpublished = c.unpublished || !slices.Equal(before, all)
	if len(all) == len(issuers) && c.unpublished {
		c.unpublished = !c.cfg.Publish(ctx, c.All())
	}
	return errors.Join(errs...)
}

// update signs the issuer's next CRL if it is due.
func (c *CRLs) update(ctx context.Context, issuer string) error {
	k := c.issuers[issuer]
	if !c.due(issuer, k.newest) {
		return nil
	}
	if time.Now().Before(k.notBefore) {
		return k.failed
	}
	if err := c.cfg.Clock(); err != nil {
		return err
	}
	began := time.Now()
	next, err := c.sign(issuer, k.newest)
	k.notBefore, k.failed = time.Now().Add(crlShare*time.Since(began)), err
	if err != nil {
		return err
	}
	k.newest = next
	c.cfg.Log.InfoContext(ctx, "CRL listed", "issuer", next.Issuer, "number", next.Number, "until", next.NextUpdate)
	return nil
}

// due reports whether the issuer's newest CRL must be followed by another.
func (c *CRLs) due(issuer string, newest *CRL) bool {
	if newest == nil || len(c.cfg.Revocations.certificates(issuer)) != newest.revoked {
		return true
	}
	now := c.now()
	// One from the future is not valid for others: our clock went back.
	return !now.Before(newest.ThisUpdate.Add(c.cfg.Validity/2)) || newest.ThisUpdate.After(now.Add(crlSkew))
}

// sign signs the CRL of an issuer after the one before, which may be nil.
func (c *CRLs) sign(issuer string, before *CRL) (*CRL, error) {
	now := c.now()
	revoked := c.cfg.Revocations.certificates(issuer)
	next := &CRL{
		Issuer:     issuer,
		Number:     uint64(max(c.cfg.Now().UnixMicro(), 1)),
		ThisUpdate: now,
		NextUpdate: now.Add(c.cfg.Validity),
		revoked:    len(revoked),
	}
	// A certificate stays until a CRL was issued beyond its validity with it (RFC 5280, section
	// 3.3), so that a check of an old signature does not miss it. After a restart it stays for
	// as long as the CRL before could be valid.
	since := now.Add(-c.cfg.Validity)
	if before != nil {
		next.Number = max(next.Number, before.Number+1)
		if since = before.ThisUpdate; since.After(now) { // by a clock that went back
			since = now
		}
	}
	request := ca.CRLRequest{Number: next.Number, ThisUpdate: now.Add(-crlSkew), NextUpdate: next.NextUpdate}
	for _, r := range revoked {
		if r.NotAfter.Before(since) {
			continue
		}
		entry := ca.Revoked{Serial: r.Serial, At: r.by.At}
		if r.by.Kind == RetiredNode {
			entry.Reason = ca.ReasonCessation
		}
		request.Revoked = append(request.Revoked, entry)
	}
	var err error
	next.DER, err = c.cfg.Authority.SignCRL(issuer, request)
	return next, err
}

// now is the clock as it crosses boundaries: UTC, to the second.
func (c *CRLs) now() time.Time { return c.cfg.Now().UTC().Truncate(time.Second) }
