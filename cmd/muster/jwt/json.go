package jwt

import (
	"encoding/json"
	"maps"
	"slices"

	"muster/jwt"
)

// tokenJSON is what `muster jwt view -o json` prints.
type tokenJSON struct {
	File string `json:"file"`

	// Verified says that a key was given and verified the signature. If it is
	// false, the claims may be forged.
	Verified   bool         `json:"verified"`
	Expired    bool         `json:"expired"`
	Algorithm  string       `json:"algorithm"`
	TokenID    jwt.TokenID  `json:"token_id,omitempty"`    // only if verified
	SignerID   jwt.SignerID `json:"signer_id,omitempty"`   // only if verified
	SignerName string       `json:"signer_name,omitempty"` // only if verified

	// Claims are the token's claims under their own names. cht and chpwd are shown with --show-secret only.
	Claims map[string]json.RawMessage `json:"claims"`
}

func (t *shown) json(secrets bool) *tokenJSON {
	out := &tokenJSON{
		File:      t.file,
		Verified:  t.verified != nil,
		Expired:   !t.Expiry().IsZero() && !t.now.Before(t.Expiry()),
		Algorithm: t.Algorithm,
		Claims:    t.raw,
	}
	if t.verified != nil {
		out.TokenID, out.SignerID, out.SignerName = t.verified.ID, t.verified.Signer, t.verified.SignerName
	}
	if !secrets {
		delete(out.Claims, "cht")
		delete(out.Claims, "chpwd")
	}
	return out
}

func only(claims map[string]json.RawMessage, names ...string) map[string]json.RawMessage {
	some := maps.Clone(claims)
	maps.DeleteFunc(some, func(name string, _ json.RawMessage) bool { return !slices.Contains(names, name) })
	return some
}
