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

// Limits of a CRL's validity.
const (
	DefaultCRLValidity = 24 * time.Hour
	MinCRLValidity     = 10 * time.Minute
	MaxCRLValidity     = 30 * 24 * time.Hour
)

const (
	// crlSkew backdates CRLs: a reader whose clock is behind rejects a CRL that is not valid yet, and then every node.
	crlSkew = 5 * time.Minute

	// crlShare bounds signing the CRLs of one issuer to a tenth of a core. Below that, revoked certificates are listed
	// within a second.
	crlShare = 10
)

// A CRL is a signed list of revoked certificates.
type CRL struct {
	Issuer     string    `json:"issuer"` // key identifier, lower-case hex
	Number     uint64    `json:"number"`
	DER        []byte    `json:"-"`
	ThisUpdate time.Time `json:"this_update"` // when it was signed; the list itself says crlSkew earlier
	NextUpdate time.Time `json:"next_update"`

	revoked int // number of revoked certificates
}

// CRLConfig configures [NewCRLs].
type CRLConfig struct {
	Authority   *ca.Authority // required
	Revocations *Revocations  // required

	// Validity is how long a CRL is valid. It is renewed after half of that.
	Validity time.Duration

	// Publish gets all CRLs, as [CRLs.All] returns them, when one is new. Calls come one at a time; after false it is
	// called again soon.
	Publish func(context.Context, []*CRL) bool

	// Clock returns why the clock cannot be trusted. No CRL is signed meanwhile: one from the past would replace a good
	// one.
	Clock func() error

	Log *slog.Logger
	Now func() time.Time
}

// CRLs are signed by this process, one for each issuer whose key it has. All provisioners sign their own from the same
// log. Their numbers are the time of signing in microseconds, so those of one issuer grow (RFC 5280, section 5.2.3) as
// far as clocks agree.
type CRLs struct {
	cfg     CRLConfig
	all     atomic.Pointer[[]*CRL]
	issuers map[string]*nextCRL // by issuer; only touched by Update

	// unpublished: Publish must be called. Only touched by Update.
	unpublished bool
}

// nextCRL is the newest CRL of one issuer. A long list takes seconds to sign, so signing has a rate limit.
type nextCRL struct {
	newest    *CRL      // nil if there is none yet
	notBefore time.Time // monotonic: of the next signing
	failed    error     // last error
}

// NewCRLs returns CRLs of which none is signed yet.
func NewCRLs(cfg CRLConfig) *CRLs {
	return &CRLs{cfg: cfg, issuers: make(map[string]*nextCRL)}
}

// Newest returns the newest CRL of the issuing authority, nil if there is none. Do not change it.
func (c *CRLs) Newest() *CRL {
	if all := c.all.Load(); all != nil && len(*all) > 0 && (*all)[0].Issuer == c.cfg.Authority.IssuerKeyID() {
		return (*all)[0]
	}
	return nil
}

// All returns the newest CRL of each issuer: the present one first, then previous ones with their keys that have not
// expired, the newest first. Do not change the CRLs.
func (c *CRLs) All() []*CRL {
	if all := c.all.Load(); all != nil {
		return slices.Clone(*all)
	}
	return nil
}

// Update signs the CRLs that are due, the present issuer's first. An error for one issuer does not stop the other
// issuers. Do not call it concurrently.
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
	// Only a complete list is published.
	c.unpublished = c.unpublished || !slices.Equal(before, all)
	if len(all) == len(issuers) && c.unpublished {
		c.unpublished = !c.cfg.Publish(ctx, c.All())
	}
	return errors.Join(errs...)
}

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

// due reports whether a certificate was revoked since, half of the validity has passed, or the clock went back.
func (c *CRLs) due(issuer string, newest *CRL) bool {
	if newest == nil || len(c.cfg.Revocations.certificates(issuer)) != newest.revoked {
		return true
	}
	now := c.now()
	// A CRL from the future is not valid for other machines: our clock went back.
	return !now.Before(newest.ThisUpdate.Add(c.cfg.Validity/2)) || newest.ThisUpdate.After(now.Add(crlSkew))
}

// sign signs the successor of before, which may be nil.
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
	// A certificate stays until a CRL beyond its validity has listed it (RFC 5280, section 3.3). After a restart it
	// stays for as long as the previous CRL could be valid.
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

// now is UTC, to the second.
func (c *CRLs) now() time.Time { return c.cfg.Now().UTC().Truncate(time.Second) }
