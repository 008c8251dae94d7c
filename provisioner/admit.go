package provisioner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// Revocations returns what this process knows of revocations.
func (p *Provisioner) Revocations() *trust.Revocations { return p.revocations }

// Fresh returns nil while this process knows all that operators had ordered [trust.MaxAge] ago, and an
// error that wraps [trust.ErrRevocationsUnknown] else: no request is decided then, and no connection
// admitted.
func (p *Provisioner) Fresh() error {
	if err := p.revocations.Err(); err != nil {
		return fmt.Errorf("%w: %w", trust.ErrRevocationsUnknown, err)
	}
	return p.logs.Fresh()
}

// AwaitFresh is Fresh for an operator: views that are too old may come up to date within [trust.MaxAge].
func (p *Provisioner) AwaitFresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trust.MaxAge)
	defer cancel()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		err := p.Fresh()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-look.C:
		}
	}
}

// authentic returns the token that a stranger presents, on the budget of source, an address. Of one
// that nobody has signed whom we know, the error has a fingerprint, by which to find who holds it:
// it has no id that could be believed.
func (p *Provisioner) authentic(text, source string) (*jwt.Verified, error) {
	token, err := p.cfg.Tokens.VerifyFrom(text, p.cfg.Budget.Of(source))
	if errors.Is(err, jwt.ErrSignature) || errors.Is(err, jwt.ErrUnknownSigner) {
		sum := sha256.Sum256([]byte(text))
		return nil, fmt.Errorf("token with SHA-256 %x…: %w", sum[:8], err)
	}
	return token, err
}

// A Gate says who may connect. It is safe for concurrent use.
type Gate struct {
	*Provisioner

	contested sync.Map // of wire.Identity: names for which two keys came back in a recovery
}

// AdmitToken returns the token, or a *[Refusal] if it is not good or revoked.
// The broker asks it for every connection that presents one, and requests are
// proven again. What it costs to refuse is on the budget of source, an address.
// It does not ask how old the revocations are: whoever is let in
// here can only ask, and is then told to come back.
func (g *Gate) AdmitToken(text, source string) (*jwt.Verified, error) {
	token, err := g.authentic(text, source)
	if err != nil {
		return nil, refuse("", TokenCode(err), err)
	}
	if by := g.revocations.Token(token.ID); by != nil {
		return nil, refuse("", wire.CodeTokenRevoked, by.Err())
	}
	return token, nil
}

// AdmitNode returns nil if the certificate with the serial is live on the
// record of id: current, or offered and not yet confirmed. The broker asks it
// for every connection to the fleet. Anything else keeps the node out, including
// a store that does not answer, revocations that are not known, and a clock that
// is behind: expired certificates would be good again by it. Connections that
// are there stay.
func (g *Gate) AdmitNode(ctx context.Context, id wire.Identity, serial string) error {
	node := string(id)
	if err := g.cfg.Clock.Check(); err != nil {
		return refuse(node, wire.CodeClockBehind, err)
	}
	if err := g.Fresh(); err != nil {
		return refuse(node, wire.CodeRevocationsUnknown, err)
	}
	// Before the record: one from a restored store knows nothing of it.
	if by := g.revocations.Serial(serial); by != nil {
		return refuse(node, wire.CodeIdentityRevoked, by.Err())
	}
	r, _, err := g.cfg.Store.Record(ctx, id)
	if err != nil {
		return g.refuseUnread(id, err)
	}
	if err := g.KnowFollowed(ctx, r); err != nil {
		return refuse(node, wire.CodeRevocationsUnknown, err)
	}
	if err := g.admits(id, r); err != nil {
		return err
	}
	if !slices.Contains(r.Live(g.now()), serial) {
		return refuse(node, wire.CodeNotIssued, fmt.Errorf("certificate %s is not live for %s", serial, id))
	}
	for _, issued := range []*Issued{r.Current, r.Next} {
		if issued == nil || issued.Serial != serial || !slices.Contains(r.Lineage, issued.KeyHash) {
			continue // a key that lost the name is live until the other one has confirmed
		}
		if by := g.revocations.Lost(id, issued.KeyHash); by != nil { // the record is of before that
			return refuse(node, wire.CodeIdentityTaken, by.Err())
		}
	}
	return nil
}

// refuseUnread refuses a node whose record could not be read, for which unread is
// the reason. That it is revoked is known without the record: then its
// connections are dropped, and do not stay until the store answers.
func (g *Gate) refuseUnread(id wire.Identity, unread error) error {
	if by := g.revocations.Outstanding(id, ""); by != nil {
		return refuse(string(id), wire.CodeIdentityRevoked, by.Err())
	}
	return refuse(string(id), storeCode(unread), unread)
}

// admits returns nil unless nobody is admitted as id, whose record is r or nil,
// whatever certificate they have.
func (g *Gate) admits(id wire.Identity, r *Record) error {
	node := string(id)
	if by := g.revocations.Outstanding(id, r.Followed()); by != nil {
		return refuse(node, wire.CodeIdentityRevoked, by.Err())
	}
	if r.state() == StateRevoked {
		return refuse(node, wire.CodeIdentityRevoked, errRevoked)
	}
	return nil
}

// checkRevocations refuses an attempt whose token or keys are revoked, or that
// comes while this process does not know what is, or what else operators have said. It is asked early, so that
// nothing is done for who must not get it, and once more right before the record
// is written: a helper may have taken minutes since.
//
// An attempt without a token, as a renewal is one, has no token to lose.
func (a *proof) checkRevocations(ctx context.Context) error {
	node := a.request.Identity
	if err := a.Fresh(); err != nil {
		return refuse(node, wire.CodeRevocationsUnknown, err)
	}
	if a.request.Token != "" {
		// A signer may have been removed, and a token may have expired. The
		// verifier remembers tokens: this is a hash and a lookup.
		token, err := a.authentic(string(a.request.Token), a.source.Address)
		if err != nil {
			return refuse(node, TokenCode(err), err)
		}
		if by := a.revocations.Token(token.ID); by != nil {
			return refuse(node, wire.CodeTokenRevoked, by.Err())
		}
	}
	for _, key := range []string{a.keyHash(), a.vouching} {
		if by := a.revocations.Key(key); by != nil {
			return refuse(node, wire.CodeIdentityRevoked, by.Err())
		}
	}
	return a.checkRejected()
}

// keyHash is the hash of the key that asks, "" before that is known.
func (a *proof) keyHash() string {
	if a.csr == nil {
		return ""
	}
	return a.csr.KeyHash
}

// watchEvery is how often the state of the views is looked at, for alarms.
const watchEvery = 200 * time.Millisecond

// watchViews raises and clears the alarms about the views.
func (w *watcher) watchViews(ctx context.Context) {
	w.cfg.Alarms.Set(ctx, wire.CodeRevocationsUnknown, w.Fresh())
	w.cfg.Alarms.Set(ctx, events.AlarmEntryUnread, w.unread.Err())
	w.watchAllowsAll(ctx)
}
