package jwt

import (
	"encoding/json"
	"time"

	"muster/jwt"
)

// tokenJSON is what `muster jwt view --json` prints. Instants are in RFC 3339, UTC, and
// absent where the token has none.
type tokenJSON struct {
	File string `json:"file"`
	signatureJSON
	secretsJSON
	claimsJSON
	standardJSON
	Other map[string]json.RawMessage `json:"other,omitempty"` // claims that muster does not know
}

// signatureJSON says how far a token can be believed.
type signatureJSON struct {
	// Verified says that a key was given and verified the signature. If it is
	// false, all that the token says may be anybody's.
	Verified   bool         `json:"verified"`
	Expired    bool         `json:"expired"`
	Algorithm  string       `json:"algorithm"`
	TokenID    jwt.TokenID  `json:"token_id,omitempty"`    // only if verified
	SignerID   jwt.SignerID `json:"signer_id,omitempty"`   // only if verified
	SignerName string       `json:"signer_name,omitempty"` // only if verified
}

// secretsJSON are the secrets of a token, empty without --show-secret.
type secretsJSON struct {
	TokenSet    bool   `json:"token_set"`
	Token       string `json:"token,omitempty"`
	PasswordSet bool   `json:"password_set"`
	Password    string `json:"password,omitempty"`
}

// claimsJSON are Choria's claims, with muster's limits.
type claimsJSON struct {
	Secure       bool                       `json:"secure"`
	URLs         []string                   `json:"urls,omitempty"`
	SRVDomain    string                     `json:"srv_domain,omitempty"`
	Default      bool                       `json:"default"`
	Registration string                     `json:"registration,omitempty"`
	Facts        string                     `json:"facts,omitempty"`
	Username     string                     `json:"username,omitempty"`
	Organization string                     `json:"organization"`
	ProtocolV2   bool                       `json:"protocol_v2"`
	AllowUpdate  bool                       `json:"allow_update"`
	Purpose      string                     `json:"purpose,omitempty"`
	Limits       jwt.Limits                 `json:"limits"`               // extensions.muster
	Extensions   map[string]json.RawMessage `json:"extensions,omitempty"` // with the member muster
}

// standardJSON are the claims of RFC 7519.
type standardJSON struct {
	Issuer    string    `json:"issuer,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	Audience  []string  `json:"audience,omitempty"`
	IssuedAt  time.Time `json:"issued_at,omitzero"`
	NotBefore time.Time `json:"not_before,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // the issuer's end, if that is earlier
	JTI       string    `json:"jti,omitempty"`
}

// json returns a token for programs.
func (t *shown) json(secrets bool) *tokenJSON {
	c := &t.Claims
	out := &tokenJSON{
		File: t.file,
		signatureJSON: signatureJSON{
			Verified:  t.verified != nil,
			Expired:   !t.Expiry().IsZero() && !t.now.Before(t.Expiry()),
			Algorithm: t.Algorithm,
		},
		secretsJSON: secretsJSON{TokenSet: c.Token != "", PasswordSet: c.Password != ""},
		claimsJSON: claimsJSON{
			Secure:       c.Secure,
			URLs:         c.PublicURLs(),
			SRVDomain:    c.SRVDomain,
			Default:      c.Default,
			Registration: c.Registration,
			Facts:        c.Facts,
			Username:     c.Username,
			Organization: c.Organization,
			ProtocolV2:   c.ProtocolV2,
			AllowUpdate:  c.AllowUpdate,
			Purpose:      c.Purpose,
			Limits:       t.Limits,
			Extensions:   c.Extensions,
		},
		standardJSON: standardJSON{
			Issuer:    c.Issuer,
			Subject:   c.Subject,
			Audience:  c.Audience,
			IssuedAt:  c.IssuedAt,
			NotBefore: c.NotBefore,
			ExpiresAt: t.Expiry(),
			JTI:       c.JTI,
		},
		Other: c.Extra,
	}
	if t.verified != nil {
		out.TokenID, out.SignerID, out.SignerName = t.verified.ID, t.verified.Signer, t.verified.SignerName
	}
	if secrets {
		out.Token, out.Password = string(c.Token), string(c.Password)
	}
	return out
}
