package jwt

import (
	"encoding/json"
	"fmt"
)

type terms struct {
	Signer string          `json:"signer"`
	Claims json.RawMessage `json:"claims"`
}

// Terms returns the token as JSON without cht, chpwd and unknown claims, for [Recall]. Treat it as read-only.
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
		return nil // decoded claims always encode
	}
	return claims
}

// Recall restores a token from its [Verified.Terms]. The result is only as authentic as the caller's store. Times and
// the signer's limits are not checked again.
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
