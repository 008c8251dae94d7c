package provisioner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/provisioner/events"
)

// errSession says that a renewal is not by a certificate that is live.
var errSession = errors.New("not by a live certificate of this node")

// errUnconfirmed says that it cannot be told which of two certificates for one
// key the node holds.
var errUnconfirmed = errors.New("two certificates of the key that vouches are live, and the later one was never confirmed")

// Renew gives a node the certificate after the live one by whose session it
// asks, through the same steps as [Provisioner.Enroll] and under the same
// promises: nothing is returned before it is on record, and asking again is
// harmless. It returns what the node gets, or a *[Refusal].
//
// There is no token. That the node is who it says it is, is proven twice: by
// its session ([Source].Node), and by a signature of a live certificate's key
// over the request. What its token said is taken from the record; that token
// may be over, revoked or used up by now, which stops no renewal. Neither
// quotas nor uses are counted.
//
// The new certificate becomes the record's next one, and the current one stays
// live until the node has confirmed it: a reply, or a confirmation, that is lost
// at any point leaves the node with a certificate that is admitted. The same
// new key again gets the same certificate again.
//
// A renewal for the key that is certified already gets the live certificate
// again before two thirds of its life are over, as every other repetition does,
// and a new one for the same key from then on: at that time a node that has
// its key in hardware means it.
func (p *Provisioner) Renew(ctx context.Context, r *wire.RenewRequest, source Source) (*wire.Enrolled, error) {
	a := &attempt{proof: proof{
		Provisioner: p,
		id:          wire.NewID(),
		watch:       p.watch(),
		source:      source,
		renewal:     true,
		certificate: r.Certificate,
		request: &wire.EnrollRequest{
			ID:         r.ID,
			Identity:   r.Identity,
			CSR:        r.CSR,
			Facts:      r.Facts,
			Agent:      r.Agent,
			Boot:       r.Boot,
			Continuity: &r.Continuity,
		},
	}}
	enrolled, written, err := a.enroll(ctx)
	a.watch.done(RequestRenew, err)
	if err != nil {
		return nil, a.refused(ctx, err)
	}
	if a.confirmed != nil && written || a.confirming != nil && a.record.Attempt == a.id { // which a member of a cluster that was behind did not show
		p.tellProvisioned(ctx, a.confirming, a.id, a.source, false)
	}
	a.granted(ctx, events.Renewed, "certificate renewed", enrolled, written)
	return enrolled, nil
}

// proveRenewal checks all of a renewal that can be checked without looking at
// the store. The session comes first: nobody but the node itself has its
// signatures looked at.
func (a *proof) proveRenewal() error {
	r := a.request
	id, err := wire.ParseIdentity(r.Identity)
	if err != nil {
		return refuse(r.Identity, wire.CodeIdentityInvalid, err)
	}
	if a.source.Node != id {
		return refuse(r.Identity, wire.CodeRenewSession, fmt.Errorf("renewal for %q over a session of %q", id, a.source.Node))
	}
	a.identity = id
	return a.proveKey()
}

// classifyRenewal says whether the newest record, which has just been read,
// admits the renewal, and recalls the token that the node came with.
func (a *attempt) classifyRenewal(ctx context.Context) error {
	node := string(a.identity)
	if len(a.certificate) > 0 && a.logs.InRecovery() != nil && (a.record == nil || a.record.liveFor(a.vouching, a.now()) == nil) {
		return a.classifyReturning(ctx)
	}
	reason, err := classifyRenewal(a.record, claim{identity: a.identity, keyHash: a.csr.KeyHash, vouching: a.vouching, requested: a.now()})
	switch {
	case errors.Is(err, errRevoked):
		return refuse(node, wire.CodeIdentityRevoked, err)
	case errors.Is(err, errTaken):
		return refuse(node, wire.CodeIdentityTaken, err)
	case err != nil:
		return refuse(node, wire.CodeRenewSession, err)
	}
	a.reason = reason
	if a.token, err = a.record.recall(); err != nil {
		return refuse(node, wire.CodeUnavailable, err)
	}
	// Whether the name is reserved is not asked: the node has it, and would be
	// lost at the end of its certificate to a rule that is newer than it.
	return nil
}

// classifyRenewal says on what ground the renewal of c.vouching to c.keyHash is
// admitted: [ReasonRenew], or [ReasonReplay] if what it asks for is live
// already. It looks at nothing but the record, which may be nil. The error is
// errRevoked, errTaken, errSession or errUnconfirmed.
func classifyRenewal(r *Record, c claim) (Reason, error) {
	switch r.state() {
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
		// A grant has given the identity to another machine. This one's
		// certificate is live until that one has confirmed, and not a day longer.
		return "", errTaken
	}
	if begun := r.begunFor(c.keyHash, now); begun != nil && slices.Contains(r.Lineage, c.keyHash) &&
		(c.vouching != c.keyHash || now.Before(begun.renewable())) {
		return ReasonReplay, nil
	}
	if r.twoLiveFor(c.vouching, now) {
		// Either may be the one that the node holds, and only one of them can
		// stay beside another. Whoever holds the later one can confirm it, and
		// the earlier one ends first.
		return "", errUnconfirmed
	}
	return ReasonRenew, nil
}

// liveFor returns the newest certificate for the key that is live at now, or nil.
func (r *Record) liveFor(keyHash string, now time.Time) *Issued {
	return r.newestFor(keyHash, func(i *Issued) bool { return i.live(now) })
}

// begunFor returns the newest certificate for the key that has begun at now, see
// [Issued.begun], or nil.
func (r *Record) begunFor(keyHash string, now time.Time) *Issued {
	return r.newestFor(keyHash, func(i *Issued) bool { return i.begun(now) })
}

func (r *Record) newestFor(keyHash string, good func(*Issued) bool) *Issued {
	for _, i := range []*Issued{r.Next, r.Current} {
		if i != nil && i.KeyHash == keyHash && good(i) {
			return i
		}
	}
	return nil
}

// twoLiveFor reports whether the current and the next certificate are live, are
// two, and are both for the key. One certificate that is offered again with
// another configuration is not two; neither is one that has not begun, since no broker
// has taken it.
func (r *Record) twoLiveFor(keyHash string, now time.Time) bool {
	return r.Current.begun(now) && r.Next.begun(now) && r.Current.Serial != r.Next.Serial &&
		r.Current.KeyHash == keyHash && r.Next.KeyHash == keyHash
}

// renewable returns when two thirds of the certificate's life are over, counted
// from when it was issued rather than from when it says it begins.
func (i *Issued) renewable() time.Time {
	start := i.NotBefore.Add(ca.Backdate)
	return start.Add(i.NotAfter.Sub(start) * 2 / 3)
}

// confirmBy makes next the current certificate if the key that vouches for a
// renewal is next's and not current's, and returns it then: who renews with the
// key of an offer holds it, and it is about to lose its place to the one after.
func (r *Record) confirmBy(vouching string, now time.Time) *Issued {
	if !r.Next.live(now) || r.Next.KeyHash != vouching || r.Current.live(now) && r.Current.KeyHash == vouching {
		return nil
	}
	r.Current, r.State, r.ProvisionedAt = r.Next, StateProvisioned, now
	return r.Current
}

// recall returns the token that the node came with, as far as it is
// remembered. Without terms that is its id, its signer and its site.
func (r *Record) recall() (*jwt.Verified, error) {
	if r == nil {
		r = &Record{} // of a node that came back in a recovery
	}
	if len(r.Terms) == 0 {
		return &jwt.Verified{ID: r.Token, Signer: r.Signer, SignerName: string(r.Signer),
			Claims: jwt.Claims{Organization: jwt.DefaultOrganization}, Limits: jwt.Limits{Site: r.Site}}, nil
	}
	token, err := jwt.Recall(r.Token, r.Signer, r.Terms)
	if err != nil {
		return nil, fmt.Errorf("record of %q: %w", r.Identity, err)
	}
	return token, nil
}

// tellSuperseded tells whoever holds connections if a certificate that was live
// before is not any more.
func (w *records) tellSuperseded(before, after *Record) {
	live := after.Live(w.now())
	if slices.ContainsFunc(before.Live(w.now()), func(serial string) bool { return !slices.Contains(live, serial) }) {
		w.cfg.Kick(after.Identity)
	}
}

// tellFormer is tellSuperseded for a record that was found as it is to be: whoever wrote it may have ended
// before it told, or may not know that it has written it.
func (w *records) tellFormer(r *Record) {
	if len(r.Superseded) > 0 {
		w.cfg.Kick(r.Identity)
	}
}

// SerialOf returns the serial of the node's certificate on record with this digest, the lower-case hex SHA-256 of its
// DER, or "" if there is none.
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
		if sum := sha256.Sum256(i.DER); hex.EncodeToString(sum[:]) == digest {
			return i.Serial, nil
		}
	}
	return "", nil
}
