package provisioner

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/trust"
)

// TokenNotes keeps notes of unlimited tokens.
type TokenNotes interface {
	// NoteToken does not wait. If a note is lost, the next process writes it.
	NoteToken(t *trust.TokenInfo)

	// NotedTokens calls each for every note, until an error.
	NotedTokens(ctx context.Context, each func(*trust.TokenInfo) error) error

	// NotedToken returns the note of a token, or nil.
	NotedToken(ctx context.Context, tid jwt.TokenID) (*trust.TokenInfo, error)

	// Records calls each for the newest record of every identity, until an error. Concurrent writes may be missed, or
	// come twice.
	Records(ctx context.Context, each func(*Record, trust.Revision) error) error

	// History returns the kept revisions, oldest first, and whether no earlier ones are missing.
	History(ctx context.Context, id wire.Identity) (history []Revised, complete bool, err error)
}

// Revised is a record with its revision.
type Revised struct {
	Record   *Record
	Revision trust.Revision
}

func (p *Provisioner) note(v *jwt.Verified) {
	if v.ID == "" || v.Limits.Uses == 1 { // none, or no longer in use
		return
	}
	if _, noted := p.noted.Load(v.ID); noted {
		return
	}
	info := trust.NewTokenInfo(v, p.now())
	if _, noted := p.noted.LoadOrStore(v.ID, info); !noted && v.Limits.Uses == 0 {
		p.cfg.Store.NoteToken(info)
	}
}

// recallTokens reads the notes that earlier processes wrote. If that fails, each token is noted at its next use.
func (p *Provisioner) recallTokens(ctx context.Context) {
	err := p.cfg.Store.NotedTokens(ctx, func(t *trust.TokenInfo) error {
		p.noted.LoadOrStore(t.ID, t)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		p.cfg.Log.WarnContext(ctx, "notes of tokens not read", "err", err)
	}
}

// TokensInUse returns the tokens that have admitted nodes and are not revoked: unlimited ones, and those with several
// uses since the start of this process.
func (p *Provisioner) TokensInUse() (all []*trust.TokenInfo) {
	for _, t := range p.noted.Range {
		if info := t.(*trust.TokenInfo); p.revocations.Token(info.ID) == nil {
			all = append(all, info)
		}
	}
	return all
}

// CommandKey returns the key that proves commands to a node that enrolled with the token. It is nil if the token's
// secret is not known.
func CommandKey(token *jwt.Verified, id wire.Identity) []byte {
	if token.Token == "" {
		return nil
	}
	return wire.CommandKey(token.Token, id)
}

func (a *proof) otherSecret(r *Record) bool {
	return a.bearer != "" && !bytes.Equal(CommandKey(a.token, a.identity), r.CommandKey)
}

// TokenUnusable returns why the recorded token would not admit its node again, or nil.
func (p *Provisioner) TokenUnusable(r *Record) error {
	if p.revocations.Token(r.Token) != nil {
		return errors.New("is revoked")
	}
	if p.cfg.Signers.Ended(r.Signer) != nil {
		return fmt.Errorf("was signed by signer %s, which was removed", r.Signer)
	}
	token, err := r.storedToken()
	if err != nil {
		return err
	}
	if end := token.Expiry(); !end.IsZero() && !p.now().Before(end) {
		return fmt.Errorf("expired at %s", end)
	}
	return nil
}

// isToken reports whether a text has the form of a token and says that it is one. Other systems have other texts in its
// place.
func isToken(text string) bool {
	t, err := jwt.Peek(text)
	return err == nil && t.Provisioning() || errors.Is(err, jwt.ErrLimit)
}

func withoutToken() *jwt.Verified {
	token, _ := (*Record)(nil).storedToken() // there are no terms that could be wrong
	return token
}

// provenBy returns the proof of the request for the policy.
func (a *attempt) provenBy() string {
	switch {
	case a.renewal:
		return policies.ProofCertificate
	case a.bearer != "" || a.oneTime:
		return policies.ProofToken
	}
	return policies.ProofNone
}

// recallToken sets the token of a request that has none: a one-time secret counts as one, and that of an owner is on
// record.
func (a *attempt) recallToken() (err error) {
	g, r := a.grant, a.record
	a.oneTime = g.Holds(a.challenge) &&
		(a.reason == ReasonOneTimeToken || !a.reason.changesHands() && r.Grant == g.ID) // else it is spent
	if a.token = withoutToken(); a.oneTime {
		a.token.IssuedAt, a.token.ExpiresAt = g.At, g.ExpiresAt
		a.token.Limits = jwt.Limits{Uses: 1, Identities: []wire.Pattern{wire.Pattern(a.identity)}}
	} else if !a.reason.changesHands() {
		if a.token, err = r.storedToken(); err != nil {
			return refuse(wire.CodeUnavailable, err)
		}
	}
	return nil
}
