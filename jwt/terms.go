package jwt

import (
	"encoding/json"
	"fmt"
)

// terms is the JSON shape of what [Verified.Terms] returns.
type terms struct {
	Signer string          `json:"signer"` // its name
	Claims json.RawMessage `json:"claims"`
}

// Terms returns what the token says, as JSON and without its secrets (cht and
// chpwd are empty, and claims that
// this package does not know, which may hold anything, are left out): what a provisioner remembers of the token that let a node
// in, for [Recall]. It is about as long as the token. The bytes are shared, and not to
// be changed.
func (v *Verified) Terms() json.RawMessage {
	if v.terms != nil {
		return v.terms
	}
	c := v.Claims
	c.Token, c.Password, c.Extra = "", "", nil
	claims, err := c.encode()
	if err == nil {
		claims, err = json.Marshal(terms{Signer: v.SignerName, Claims: claims})
	}
	if err != nil {
		return nil // decoded claims encode again; without terms there is less to go by
	}
	return claims
}

// Recall returns a token from what was remembered of it: its id, its signer,
// and its [Verified.Terms]. It is as authentic as the caller's memory, and its
// times and its signer's limits have been checked then and not now: it is no
// credential, and [Verified.Admits] knows only the token's own limits.
func Recall(id TokenID, signer SignerID, remembered json.RawMessage) (*Verified, error) {
	var t terms
	if err := json.Unmarshal(remembered, &t); err != nil {
		return nil, fmt.Errorf("terms of token %s: %w", id, err)
	}
	c, err := decodeClaims(t.Claims)
	if err != nil {
		return nil, fmt.Errorf("terms of token %s: %w", id, err)
	}
	limits, err := c.Limits()
	if err != nil {
		return nil, fmt.Errorf("terms of token %s: %w", id, err)
	}
	return &Verified{Claims: c, Limits: limits, ID: id, Signer: signer, SignerName: t.Signer}, nil
}
