package provisioner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/provisioner/events"
)

var errSession = errors.New("the key that signed the renewal has no live certificate of this node")

var errUnconfirmed = errors.New("two certificates of the signing key are live, and the later one is not confirmed")

// Renew gives a node its next certificate, with the steps and guarantees of [Provisioner.Enroll]. The node is proven by
// its session ([Source].Node) and by a signature of a live certificate's key; a client of another system signs nothing,
// see [Edge.Session]. An expired, revoked or used-up token does not stop a renewal.
//
// The current certificate stays live until the node confirms the next one, so a lost message always leaves an admitted
// certificate. The same key (in hardware, for example) gets a new certificate after two thirds of the current one's
// life.
func (p *Provisioner) Renew(ctx context.Context, r *wire.RenewRequest, source Source) (*wire.Enrolled, error) {
	a := &attempt{proof: proof{
		Provisioner: p,
		id:          wire.NewID(),
		begun:       time.Now(),
		source:      source,
		renewal:     true,
		certificate: r.Certificate,
		request: &wire.EnrollRequest{
			ID:         r.ID,
			Identity:   r.Identity,
			CSR:        r.CSR,
			Facts:      r.Facts,
			FactsError: r.FactsError,
			Agent:      r.Agent,
			Boot:       r.Boot,
			Continuity: &r.Continuity,
		},
	}}
	enrolled, written, err := a.enroll(ctx)
	p.done(RequestRenew, a.begun, err)
	if err != nil {
		return nil, a.reportRefused(ctx, err)
	}
	// The second condition: a lagging cluster member hid this attempt's own write.
	if a.confirmed != nil && written || a.confirming != nil && a.record.Attempt == a.id {
		p.reportProvisioned(ctx, a.confirming, a.id, a.source, false)
	}
	if !source.Edge.keeps() { // the confirmation of another configuration is an event
		a.reportGranted(ctx, events.Renewed, "certificate renewed", enrolled, written)
	}
	return enrolled, nil
}

// The session is checked first, so that only the node itself causes signature checks.
func (a *proof) proveRenewal() error {
	r := a.request
	id, err := wire.ParseIdentity(r.Identity)
	if err != nil {
		return refuse(wire.CodeIdentityInvalid, err)
	}
	if a.source.Node != id {
		return refuse(wire.CodeRenewSession, fmt.Errorf("renewal for %q over the session of %q", id, a.source.Node))
	}
	a.identity = id
	return a.proveKey()
}

func (a *attempt) classifyRenewal(ctx context.Context) error {
	if len(a.certificate) > 0 && a.logs.InRecovery() != nil &&
		(a.record == nil || a.record.liveFor(a.vouching, a.now()) == nil) {
		return a.classifyReturning(ctx)
	}
	reason, err := classifyRenewal(a.record, claim{
		identity:  a.identity,
		keyHash:   a.csr.KeyHash,
		vouching:  a.vouching,
		keep:      a.source.Edge.keeps(),
		requested: a.now(),
	})
	switch {
	case errors.Is(err, errRevoked):
		return refuse(wire.CodeIdentityRevoked, err)
	case errors.Is(err, errTaken):
		return refuse(wire.CodeIdentityTaken, err)
	case err != nil:
		return refuse(wire.CodeRenewSession, err)
	}
	a.reason = reason
	if a.token, err = a.record.storedToken(); err != nil {
		return refuse(wire.CodeUnavailable, err)
	}
	// Config.Reserved is not called: a newer rule must not end the renewals of a node.
	return nil
}

// classifyRenewal returns [ReasonRenew] or [ReasonReplay], or errRevoked, errTaken, errSession or errUnconfirmed. r
// may be nil.
func classifyRenewal(r *Record, c claim) (Reason, error) {
	switch StateOf(r) {
	case StateNone, StateRetired:
		return "", errSession
	case StateRevoked:
		return "", errRevoked
	}
	now := c.requested
	if r.liveFor(c.vouching, now) == nil {
		return "", errSession
	}
	if !slices.Contains(r.Lineage, c.vouching) {
		// Another key took over the identity. This certificate is live until that key confirms.
		return "", errTaken
	}
	if valid := r.validFor(c.keyHash, now); valid != nil && slices.Contains(r.Lineage, c.keyHash) &&
		(c.keep || c.vouching != c.keyHash || now.Before(valid.renewable())) {
		return ReasonReplay, nil
	}
	if c.keep {
		return "", errSession
	}
	if r.twoLiveFor(c.vouching, now) {
		// The node can confirm the later certificate. The earlier one expires first.
		return "", errUnconfirmed
	}
	return ReasonRenew, nil
}

func (r *Record) liveFor(keyHash string, now time.Time) *Issued {
	return r.newestFor(keyHash, func(i *Issued) bool { return i.live(now) })
}

func (r *Record) validFor(keyHash string, now time.Time) *Issued {
	return r.newestFor(keyHash, func(i *Issued) bool { return i.valid(now) })
}

func (r *Record) newestFor(keyHash string, good func(*Issued) bool) *Issued {
	for _, i := range []*Issued{r.Next, r.Current} {
		if i != nil && i.KeyHash == keyHash && good(i) {
			return i
		}
	}
	return nil
}

func (r *Record) twoLiveFor(keyHash string, now time.Time) bool {
	return r.Current.valid(now) && r.Next.valid(now) && r.Current.Serial != r.Next.Serial &&
		r.Current.KeyHash == keyHash && r.Next.KeyHash == keyHash
}

// renewable returns when two thirds of the certificate's life are over, counted from its issue.
func (i *Issued) renewable() time.Time {
	start := i.NotBefore.Add(ca.Backdate)
	if i.OfferedAt.After(start) { // the certificate of a Puppet agent begins a day earlier
		start = i.OfferedAt
	}
	return start.Add(i.NotAfter.Sub(start) * 2 / 3)
}

// confirmNext makes the offer current if its key signed the renewal: the node has it.
func (r *Record) confirmNext(vouching string, now time.Time) *Issued {
	if !r.Next.live(now) || r.Next.KeyHash != vouching || r.Current.live(now) && r.Current.KeyHash == vouching {
		return nil
	}
	r.Current, r.State, r.ProvisionedAt = r.Next, StateProvisioned, now
	return r.Current
}

func (r *Record) storedToken() (*jwt.Verified, error) {
	r = cmp.Or(r, &Record{}) // the node came back in a recovery
	if len(r.Terms) == 0 {
		return &jwt.Verified{
			ID:         r.Token,
			Signer:     r.Signer,
			SignerName: string(r.Signer),
			Claims:     jwt.Claims{Organization: jwt.DefaultOrganization},
			Limits:     jwt.Limits{Site: r.Site},
		}, nil
	}
	token, err := jwt.Recall(r.Token, r.Signer, r.Terms)
	if err != nil {
		return nil, fmt.Errorf("record of %q: %w", r.Identity, err)
	}
	return token, nil
}

func (w *records) kickSuperseded(before, after *Record) {
	live := after.Live(w.now())
	if slices.ContainsFunc(before.Live(w.now()), func(serial string) bool { return !slices.Contains(live, serial) }) {
		w.cfg.Kick(after.Identity)
	}
}

// kickFormer repeats the kick of a writer that may have died.
func (w *records) kickFormer(r *Record) {
	if len(r.Superseded) > 0 {
		w.cfg.Kick(r.Identity)
	}
}

// SerialOf returns the serial of the recorded certificate with this SHA-256 in hex, or "".
func (g *Gate) SerialOf(ctx context.Context, id wire.Identity, digest string) (string, error) {
	r, _, err := g.cfg.Store.Record(ctx, id)
	if err != nil {
		return "", g.refuseUnread(id, err)
	}
	if r == nil {
		return "", nil
	}
	for _, i := range []*Issued{r.Current, r.Next} {
		if i == nil {
			continue
		}
		if wire.Sum(i.DER) == digest {
			return i.Serial, nil
		}
	}
	return "", nil
}
