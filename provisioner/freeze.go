package provisioner

import (
	"context"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// A Freeze says that a backup was restored and that nobody knows what was spent
// of limited tokens since: whatever token was signed before it is good for no
// use, until an operator says of that token that it is.
type Freeze struct {
	ID    string    `json:"id"` // of the restore
	At    time.Time `json:"at"` // tokens signed until then are frozen
	Since time.Time `json:"since"`
}

// A Thaw says that a frozen token is good again.
type Thaw struct {
	Freeze string      `json:"freeze"` // that it is about: a later one freezes the token again
	Token  jwt.TokenID `json:"tid"`
	At     time.Time   `json:"at"`
	Cause
}

// A FreezeStore keeps the newest freeze and what was thawed. A freeze is written
// by a restore only, while nobody serves from the store.
type FreezeStore interface {
	// Freeze returns the newest freeze, or nil.
	Freeze(ctx context.Context) (*Freeze, error)

	// Thaw returns the newest thaw of a token, or nil.
	Thaw(ctx context.Context, tid jwt.TokenID) (*Thaw, error)

	// PutThaw writes a thaw. After an error it may be written; writing it again is
	// harmless.
	PutThaw(ctx context.Context, t *Thaw) error
}

// EventTokenThawed says that an operator has made a frozen token good again.
const EventTokenThawed EventType = "io.muster.token.thawed"

// readFreeze reads what a restore may have left, before anybody is served.
func (p *Provisioner) readFreeze(ctx context.Context) error {
	f, err := p.cfg.Store.Freeze(ctx)
	if err != nil {
		return err
	}
	if f != nil {
		p.cfg.Log.WarnContext(ctx, "limited tokens signed before the restore are frozen, until thawed or signed anew", "until", f.At)
	}
	p.freeze.Store(f)
	return nil
}

// Frozen reports whether a restore has frozen limited tokens that were signed
// before it, some of which may be thawed since.
func (p *Provisioner) Frozen() bool { return p.freeze.Load() != nil }

// frozen returns the freeze that a limited token is under, nil for none. One that was
// signed after the restore has lost nothing; one that does not say when it was
// signed may have.
func (p *Provisioner) frozen(ctx context.Context, tid jwt.TokenID, issued time.Time) (*Freeze, error) {
	f := p.freeze.Load()
	if f == nil || issued.After(f.At) {
		return nil, nil
	}
	t, err := p.cfg.Store.Thaw(ctx, tid)
	if err != nil || t != nil && t.Freeze == f.ID {
		return nil, err
	}
	return f, nil
}

// markFrozen says of a token whether it is frozen.
func (p *Provisioner) markFrozen(ctx context.Context, t *TokenSummary) error {
	if t.Uses == 0 {
		return nil
	}
	f, err := p.frozen(ctx, t.ID, t.IssuedAt)
	t.Frozen = f != nil
	return err
}

// checkFrozen refuses an attempt that would take a use of a frozen token.
func (p *Provisioner) checkFrozen(ctx context.Context, a *attempt) error {
	f, err := p.frozen(ctx, a.token.ID, a.token.IssuedAt)
	if err != nil {
		return refuse(string(a.identity), p.storeCode(err), err)
	}
	if f == nil {
		return nil
	}
	return refuse(string(a.identity), wire.CodeTokenFrozen, fmt.Errorf("token %s is limited and from before the restore of %s, by which uses were lost since %s",
		a.token.ID, f.At.Format(time.RFC3339), f.Since.Format(time.RFC3339)))
}

// ThawToken makes a token that a restore has frozen good for the uses that the
// restored store leaves it: those that were spent since the backup and are on
// nobody's record come on top. Asking again is harmless. The error is
// [ErrTokenID], or [ErrState] if no token is frozen.
func (p *Provisioner) ThawToken(ctx context.Context, tid jwt.TokenID, c Cause) error {
	if err := wrong(c.Check(), CheckTokenID(tid)); err != nil {
		return fmt.Errorf("thaw token: %w", err)
	}
	f := p.freeze.Load()
	if f == nil {
		return fmt.Errorf("thaw token %s: %w: no store with lost uses was restored, so no token is frozen", tid, ErrState)
	}
	told := Event{Type: EventTokenThawed, Time: p.moment(), Token: tid, By: c.By, Why: c.Why}
	if err := p.cfg.Store.PutThaw(ctx, &Thaw{Freeze: f.ID, Token: tid, At: p.now(), Cause: c}); err != nil {
		return fmt.Errorf("thaw token %s: %w", tid, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "token thawed", "token_id", tid, "by", c.By, "why", c.Why)
	return nil
}
