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

// Revocations returns this process's view of revocations.
func (p *Provisioner) Revocations() *trust.Revocations { return p.revocations }

// Fresh returns nil if this process knows every order older than [trust.MaxAge], else an error that wraps
// [trust.ErrRevocationsUnknown]. Without it no request or connection is admitted.
func (p *Provisioner) Fresh() error {
	if err := p.revocations.Err(); err != nil {
		return fmt.Errorf("%w: %w", trust.ErrRevocationsUnknown, err)
	}
	return p.logs.Fresh()
}

// AwaitFresh is Fresh, but waits up to [trust.MaxAge] for the views.
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

// The id of a token without a good signature cannot be believed, so the error has a fingerprint.
func (p *Provisioner) authentic(text, source string) (*jwt.Verified, error) {
	token, err := p.cfg.Tokens.VerifyFrom(text, p.cfg.Budget.Of(source))
	if errors.Is(err, jwt.ErrSignature) || errors.Is(err, jwt.ErrUnknownSigner) {
		sum := sha256.Sum256([]byte(text))
		return nil, fmt.Errorf("token with SHA-256 %x…: %w", sum[:8], err)
	}
	return token, err
}

// A Gate decides which connections are admitted. It is safe for concurrent use.
type Gate struct {
	*Provisioner

	contested sync.Map // of wire.Identity: names that two keys claimed in a recovery
}

// AdmitToken verifies the token of a connection on the budget of source, an address. Each request is checked again.
// The error is a *[Refusal].
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

// AdmitNode returns nil if the certificate with the serial is live on the record of id. It fails closed: a clock that
// is behind would make expired certificates good again.
func (g *Gate) AdmitNode(ctx context.Context, id wire.Identity, serial string) error {
	node := string(id)
	if err := g.cfg.Clock.Check(); err != nil {
		return refuse(node, wire.CodeClockBehind, err)
	}
	if err := g.Fresh(); err != nil {
		return refuse(node, wire.CodeRevocationsUnknown, err)
	}
	// Before the record, which a restore may have made older.
	if by := g.revocations.Serial(serial); by != nil {
		return refuse(node, wire.CodeIdentityRevoked, by.Err())
	}
	r, _, err := g.cfg.Store.Record(ctx, id)
	if err != nil {
		return g.refuseUnread(id, err)
	}
	if err := g.SyncRevocations(ctx, r); err != nil {
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
			continue // a lost key is live until the new one has confirmed
		}
		if by := g.revocations.Lost(id, issued.KeyHash); by != nil { // the record is older
			return refuse(node, wire.CodeIdentityTaken, by.Err())
		}
	}
	return nil
}

// refuseUnread refuses a node whose record is unreadable. A revocation is known without it.
func (g *Gate) refuseUnread(id wire.Identity, unread error) error {
	if by := g.revocations.Outstanding(id, ""); by != nil {
		return refuse(string(id), wire.CodeIdentityRevoked, by.Err())
	}
	return refuse(string(id), storeCode(unread), unread)
}

// admits refuses a revoked identity. r may be nil.
func (g *Gate) admits(id wire.Identity, r *Record) error {
	node := string(id)
	if by := g.revocations.Outstanding(id, r.AppliedRevocation()); by != nil {
		return refuse(node, wire.CodeIdentityRevoked, by.Err())
	}
	if r.state() == StateRevoked {
		return refuse(node, wire.CodeIdentityRevoked, errRevoked)
	}
	return nil
}

// checkRevocations runs early, and again right before the write, since a helper may take minutes.
func (a *proof) checkRevocations(ctx context.Context) error {
	node := a.request.Identity
	if err := a.Fresh(); err != nil {
		return refuse(node, wire.CodeRevocationsUnknown, err)
	}
	if a.request.Token != "" {
		// The signer may be removed or the token expired. Verified tokens are cached.
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

func (a *proof) keyHash() string {
	if a.csr == nil {
		return ""
	}
	return a.csr.KeyHash
}

const watchEvery = 200 * time.Millisecond

func (w *watcher) watchViews(ctx context.Context) {
	w.cfg.Alarms.Set(ctx, wire.CodeRevocationsUnknown, w.Fresh())
	w.cfg.Alarms.Set(ctx, events.AlarmEntryUnread, w.unread.Err())
	w.watchAllowsAll(ctx)
}
