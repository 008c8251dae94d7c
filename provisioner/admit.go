package provisioner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"muster/internal/span"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
	"muster/provisioner/trust"
)

// Revocations returns this process's view of revocations.
func (p *Provisioner) Revocations() *trust.Revocations { return p.revocations }

// Fresh returns nil if this process knows every order older than [trust.MaxAge]. If not, no request or connection is
// admitted; the error wraps [trust.ErrRevocationsUnknown].
func (p *Provisioner) Fresh() error {
	if err := p.revocations.Err(); err != nil {
		return fmt.Errorf("%w: %w", trust.ErrRevocationsUnknown, err)
	}
	return p.logs.Fresh()
}

// AwaitFresh is like Fresh, but waits up to [trust.MaxAge] for missing orders.
func (p *Provisioner) AwaitFresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, trust.MaxAge)
	defer cancel()
	for {
		if err := p.Fresh(); err == nil || !span.Sleep(ctx, 50*time.Millisecond) {
			return err
		}
	}
}

// A token with a bad signature may have a false id, so the error has its SHA-256.
func (p *Provisioner) authentic(text, source string) (*jwt.Verified, error) {
	token, err := p.cfg.Signers.VerifyFrom(text, p.cfg.Budget.Of(source))
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

// AdmitToken verifies the token of a connection and charges the budget of source, an address. Each request is checked
// again. The error is a *[Refusal].
func (g *Gate) AdmitToken(text, source string) (*jwt.Verified, error) {
	token, err := g.authentic(text, source)
	if err != nil {
		return nil, refuse(TokenCode(err), err)
	}
	if by := g.revocations.Token(token.ID); by != nil {
		return nil, refuse(wire.CodeTokenRevoked, by.Err())
	}
	return token, nil
}

// AdmitNode returns nil if the record of id has a live certificate with this serial. It refuses while the clock is
// behind, since expired certificates would seem valid.
func (g *Gate) AdmitNode(ctx context.Context, id wire.Identity, serial string) error {
	_, err := g.AdmitPeer(ctx, ProtocolMuster, id, serial)
	return err
}

// AdmitPeer is [Gate.AdmitNode] for a node that enrolled over the protocol. It returns the record, which must not be
// changed.
func (g *Gate) AdmitPeer(ctx context.Context, over Protocol, id wire.Identity, serial string) (*Record, error) {
	r, err := g.peer(ctx, id, serial)
	if err != nil {
		return nil, err
	}
	if err := g.admitsPeer(r, over, id, serial); err != nil {
		return nil, err
	}
	return r, nil
}

func (g *Gate) peer(ctx context.Context, id wire.Identity, serial string) (*Record, error) {
	if err := g.cfg.Clock.Check(); err != nil {
		return nil, refuse(wire.CodeClockBehind, err)
	}
	if err := g.Fresh(); err != nil {
		return nil, refuse(wire.CodeRevocationsUnknown, err)
	}
	// Checked first, since a restored record may be older.
	if by := g.revocations.Serial(serial); by != nil {
		return nil, refuse(wire.CodeIdentityRevoked, by.Err())
	}
	r, _, err := g.cfg.Store.Record(ctx, id)
	if err != nil {
		return nil, g.refuseUnread(id, err)
	}
	if err := g.SyncRevocations(ctx, r); err != nil {
		return nil, refuse(wire.CodeRevocationsUnknown, err)
	}
	return r, g.admits(id, r)
}

// admitsPeer judges a record, which may be nil.
func (g *Gate) admitsPeer(r *Record, over Protocol, id wire.Identity, serial string) error {
	if r != nil && r.Protocol != over {
		return refuse(wire.CodeNotIssued, fmt.Errorf("%w: %s", errOtherProtocol, r.Protocol))
	}
	if !slices.Contains(r.Live(g.now()), serial) {
		return refuse(wire.CodeNotIssued, fmt.Errorf("certificate %s is not live for %s", serial, id))
	}
	for _, issued := range []*Issued{r.Current, r.Next} {
		if issued == nil || issued.Serial != serial || !slices.Contains(r.Lineage, issued.KeyHash) {
			continue // a replaced key is live until the new one confirms
		}
		if by := g.revocations.Lost(id, issued.KeyHash); by != nil { // a restored record may not show it
			return refuse(wire.CodeIdentityTaken, by.Err())
		}
	}
	return nil
}

// refuseUnread refuses a node whose record is unreadable. The revocation log needs no record.
func (g *Gate) refuseUnread(id wire.Identity, unread error) error {
	if by := g.revocations.Outstanding(id, ""); by != nil {
		return refuse(wire.CodeIdentityRevoked, by.Err())
	}
	return refuse(StoreCode(unread), unread)
}

// admits returns a refusal if the identity is revoked. r may be nil.
func (g *Gate) admits(id wire.Identity, r *Record) error {
	if by := g.revocations.Outstanding(id, r.AppliedRevocation()); by != nil {
		return refuse(wire.CodeIdentityRevoked, by.Err())
	}
	if StateOf(r) == StateRevoked {
		return refuse(wire.CodeIdentityRevoked, errRevoked)
	}
	return nil
}

// checkRevocations runs early, and again before the write, since a configuration helper may run for minutes.
func (a *proof) checkRevocations(ctx context.Context) error {
	if err := a.Fresh(); err != nil {
		return refuse(wire.CodeRevocationsUnknown, err)
	}
	if a.bearer != "" {
		// The signer may have been removed, or the token expired. Verified tokens are cached.
		token, err := a.authentic(a.bearer, a.source.Address)
		if err != nil {
			return refuse(TokenCode(err), err)
		}
		if by := a.revocations.Token(token.ID); by != nil {
			return refuse(wire.CodeTokenRevoked, by.Err())
		}
	}
	for _, key := range []string{a.keyHash(), a.vouching} {
		if by := a.revocations.Key(key); by != nil {
			return refuse(wire.CodeIdentityRevoked, by.Err())
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
	w.cfg.Alarms.Set(ctx, wire.CodePolicyFailed, w.policyFailed())
	w.watchAllowsAll(ctx)
}
