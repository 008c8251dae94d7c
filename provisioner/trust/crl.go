package trust

import (
	"cmp"
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

// A Puppet agent needs its saved CRL to fetch the next one, so a CRL lasts as long as an agent may be off.
const (
	PuppetCRLValidity = 5 * 365 * 24 * time.Hour
	PuppetCRLRenewal  = 30 * 24 * time.Hour
	PuppetCRLSkew     = 6 * time.Hour
)

const (
	crlSkew = 5 * time.Minute

	// crlShare limits signing to a tenth of a core per issuer.
	crlShare = 10
)

// A CRL is a signed list of revoked certificates.
type CRL struct {
	Issuer     string    `json:"issuer"` // key identifier, lower-case hex
	Number     uint64    `json:"number"`
	DER        []byte    `json:"-"`
	ThisUpdate time.Time `json:"this_update"` // the signed list has the skew less
	NextUpdate time.Time `json:"next_update"`

	revoked int // number of certificates
}

// CRLConfig configures [NewCRLs]. All is required but Renewal and Skew.
type CRLConfig struct {
	Authority   *ca.Authority
	Revocations *Revocations

	Validity time.Duration

	// Renewal is the time until the next CRL, by default half the validity.
	Renewal time.Duration

	// Skew backdates CRLs for readers whose clocks are behind, by default 5 minutes.
	Skew time.Duration

	// Publish is called with all CRLs when one is new, and again if it returns false.
	Publish func(context.Context, []*CRL) bool

	// Clock returns why the clock cannot be trusted.
	Clock func() error

	Log *slog.Logger
	Now func() time.Time
}

// CRLs signs the CRLs of one provisioner. Their numbers are times in microseconds, so that they grow (RFC 5280, section
// 5.2.3) while the provisioners' clocks agree.
type CRLs struct {
	cfg     CRLConfig
	all     atomic.Pointer[[]*CRL]
	issuers map[string]*nextCRL // by issuer; owned by Update

	// Owned by Update.
	unpublished bool
}

// A nextCRL limits the rate of signing, since a long list takes seconds.
type nextCRL struct {
	newest    *CRL      // may be nil
	notBefore time.Time // monotonic
	failed    error
}

// NewCRLs returns CRLs with none signed yet.
func NewCRLs(cfg CRLConfig) *CRLs {
	cfg.Renewal, cfg.Skew = cmp.Or(cfg.Renewal, cfg.Validity/2), cmp.Or(cfg.Skew, crlSkew)
	return &CRLs{cfg: cfg, issuers: make(map[string]*nextCRL)}
}

// Newest returns the newest CRL of the issuing authority, or nil.
func (c *CRLs) Newest() *CRL {
	if all := c.all.Load(); all != nil && len(*all) > 0 && (*all)[0].Issuer == c.cfg.Authority.IssuerKeyID() {
		return (*all)[0]
	}
	return nil
}

// All returns the newest CRL of each issuer.
func (c *CRLs) All() []*CRL {
	if all := c.all.Load(); all != nil {
		return slices.Clone(*all)
	}
	return nil
}

// Update signs the CRLs that are due. Do not call it concurrently.
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
	// Publish complete lists only.
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

func (c *CRLs) due(issuer string, newest *CRL) bool {
	if newest == nil || len(c.cfg.Revocations.certificates(issuer)) != newest.revoked {
		return true
	}
	now := c.now()
	// A CRL from the future means that the clock went back.
	return !now.Before(newest.ThisUpdate.Add(c.cfg.Renewal)) || newest.ThisUpdate.After(now.Add(crlSkew))
}

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
	// An expired certificate stays until one later CRL has listed it (RFC 5280, section 3.3); after a restart, for the
	// validity of a CRL.
	since := now.Add(-c.cfg.Validity)
	if before != nil {
		next.Number = max(next.Number, before.Number+1)
		if since = before.ThisUpdate; since.After(now) { // the clock went back
			since = now
		}
	}
	request := ca.CRLRequest{Number: next.Number, ThisUpdate: now.Add(-c.cfg.Skew), NextUpdate: next.NextUpdate}
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

func (c *CRLs) now() time.Time { return c.cfg.Now().UTC().Truncate(time.Second) }
