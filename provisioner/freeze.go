package provisioner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/events"
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

// FreezeKey is the key of the log's only freeze. It is written by a restore, while no
// provisioner serves from the store.
const FreezeKey = "limited"

// Check reports what about a freeze cannot be.
func (f *Freeze) Check() error {
	if f.ID == "" || f.At.IsZero() {
		return fmt.Errorf("freeze %q of %s: want an id and a time", f.ID, f.At)
	}
	return nil
}

// Check reports what about a thaw cannot be.
func (t *Thaw) Check() error { return errors.Join(CheckTokenID(t.Token), t.Cause.Check()) }

// inFreeze returns what a restore has left, nil if nothing. One that cannot be read freezes what
// was signed before it was written.
func (p *Provisioner) inFreeze() *Freeze {
	switch e, found := p.logs.Freezes.Get(FreezeKey); {
	case !found:
		return nil
	case e.Unread != nil:
		return &Freeze{At: e.At, Since: e.At}
	default:
		return e.Value
	}
}

// Frozen reports whether a restore has frozen limited tokens that were signed
// before it, some of which may be thawed since.
func (p *Provisioner) Frozen() bool { return p.inFreeze() != nil }

// frozen returns the freeze that a limited token is under, nil for none. One that was
// signed after the restore has lost nothing; one that does not say when it was
// signed may have.
func (p *Provisioner) frozen(tid jwt.TokenID, issued time.Time) *Freeze {
	f := p.inFreeze()
	if f == nil || issued.After(f.At) {
		return nil
	}
	if t, found := p.logs.Thaws.Get(string(tid)); found && t.Unread == nil && t.Value.Freeze == f.ID {
		return nil
	}
	return f
}

// checkFrozen refuses an attempt that would take a use of a frozen token.
func (p *Provisioner) checkFrozen(a *attempt) error {
	f := p.frozen(a.token.ID, a.token.IssuedAt)
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
	f := p.inFreeze()
	if f == nil {
		return fmt.Errorf("thaw token %s: %w: no store with lost uses was restored, so no token is frozen", tid, ErrState)
	}
	told := events.Event{Type: events.TokenThawed, Time: p.moment(), Token: tid, By: c.By, Why: c.Why}
	t := &Thaw{Freeze: f.ID, Token: tid, At: p.now(), Cause: c}
	if _, err := Change(ctx, p.logs.Thaws, string(tid), func(Entry[*Thaw]) (*Thaw, error) { return t, nil }); err != nil {
		return fmt.Errorf("thaw token %s: %w", tid, err)
	}
	p.cfg.Emit(told)
	p.cfg.Log.InfoContext(ctx, "token thawed", "token_id", tid, "by", c.By, "why", c.Why)
	return nil
}
