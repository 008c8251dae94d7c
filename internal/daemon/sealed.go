package daemon

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"muster/internal/seal"
	"muster/internal/wire"
	"muster/provisioner/broker"
)

// SealKey returns the public key to which new tokens are to be sealed, in the
// form of a token's `seal`: the first of the configuration. It is empty if there
// is none.
func (d *Daemon) SealKey() string {
	if len(d.parts.sealKeys) == 0 {
		return ""
	}
	return d.parts.sealKeys[0].Public().String()
}

// verifyToken lets the broker check tokens of connections. Nobody's is good
// before it is known which signers and tokens are not any more.
//
// A token that is to be sealed is refused in plain: the network has seen it
// then, and a node that was brought to show it must not go on as if nothing
// were. Nodes of ours never do.
func (d *Daemon) verifyToken(p broker.Presented) (expires time.Time, err error) {
	operator := d.provisioner.Load()
	if operator == nil {
		return time.Time{}, &broker.Denied{Code: wire.CodeRevocationsUnknown, Err: errNotOpen}
	}
	text, err := d.openToken(p)
	if err != nil {
		return time.Time{}, err
	}
	v, err := operator.AdmitToken(string(text), p.Address)
	if err == nil && seal.IsSealedToken(string(p.Token)) {
		d.budget.Refund(p.Address)
	}
	if err != nil {
		refused := denied(err)
		if behind := d.clock.Load().Check(); behind != nil && refused.Code == wire.CodeTokenNotYetValid {
			refused = &broker.Denied{Code: wire.CodeClockBehind, Err: fmt.Errorf("%w; %w", behind, refused.Err)} // it is ours that is wrong
		}
		return time.Time{}, refused
	}
	if v.Limits.Seal != "" && !seal.IsSealedToken(string(p.Token)) {
		return time.Time{}, &broker.Denied{Code: wire.CodeSealedInvalid,
			Err: fmt.Errorf("token %s is to be sealed, and came in plain: whoever listens has it now; revoke it and sign another if that may be somebody", v.ID)}
	}
	return v.Expiry(), nil
}

// openToken returns the token that a connection presents, out of its seal if it
// is sealed. It is of this connection then: whoever sealed it has proven to be there
// over the broker's nonce, so that nobody can present what they recorded. Opening is charged like the check of a signature,
// and the caller gives that back if the token is good: anybody can seal garbage.
func (d *Daemon) openToken(p broker.Presented) (wire.Secret, error) {
	if !seal.IsSealedToken(string(p.Token)) {
		return p.Token, nil
	}
	if d.parts.opener == nil {
		return "", &broker.Denied{Code: wire.CodeSealedUnsupported, Err: errors.New("sealed token, and the provisioner has no seal.keys")}
	}
	if !d.budget.Charge(p.Address) {
		return "", &broker.Denied{Code: wire.CodeSourceLimited, Err: errors.New("too many tokens of this source were of no use")}
	}
	text, err := d.parts.opener.OpenToken(seal.Presented{Token: string(p.Token), Name: p.Nkey, Signature: p.Signature, Nonce: p.Nonce})
	switch {
	case errors.Is(err, seal.ErrUnknownKey):
		err = fmt.Errorf("%w, seal.keys has %s: sign tokens with the seal.pub of one of these, or put the former key back", err, d.sealKeyIDs())
	case errors.Is(err, seal.ErrProof):
		err = fmt.Errorf("%w: it was recorded and sent again", err)
	}
	if err != nil {
		return "", &broker.Denied{Code: wire.CodeSealedInvalid, Err: err}
	}
	return text, nil
}

// sealKeyIDs names the keys that we hold, for people.
func (d *Daemon) sealKeyIDs() string {
	var ids []string
	for _, k := range d.parts.sealKeys {
		ids = append(ids, k.Public().ID())
	}
	return strings.Join(ids, ", ")
}
