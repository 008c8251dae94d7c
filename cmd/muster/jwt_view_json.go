package main

import (
	"encoding/json"
	"io"
	"time"

	"muster/jwt"
)

// tokenView is what `muster jwt view --json` prints. Members are only ever
// added. Instants are in RFC 3339, UTC, and absent where the token has none.
type tokenView struct {
	File string `json:"file"`

	// Verified says that a key was given and verified the signature. If it is
	// false, everything below is what somebody wrote.
	Verified   bool         `json:"verified"`
	Expired    bool         `json:"expired"`
	Algorithm  string       `json:"algorithm"`
	TokenID    jwt.TokenID  `json:"token_id,omitempty"`    // only if verified
	SignerID   jwt.SignerID `json:"signer_id,omitempty"`   // only if verified
	SignerName string       `json:"signer_name,omitempty"` // only if verified

	TokenSet    bool   `json:"token_set"`
	Token       string `json:"token,omitempty"` // only with --show-secret
	PasswordSet bool   `json:"password_set"`
	Password    string `json:"password,omitempty"` // only with --show-secret

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

	Issuer    string     `json:"issuer,omitempty"`
	Subject   string     `json:"subject,omitempty"`
	Audience  []string   `json:"audience,omitempty"`
	IssuedAt  *time.Time `json:"issued_at,omitempty"`
	NotBefore *time.Time `json:"not_before,omitempty"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // the issuer's end, if that is earlier
	JTI       string     `json:"jti,omitempty"`

	Other map[string]json.RawMessage `json:"other,omitempty"` // claims that muster does not know
}

// writeJSON prints a token for programs.
func (v *jwtVerb) writeJSON(w io.Writer, u *jwt.Unverified, verified *jwt.Verified) error {
	c := &u.Claims
	now := v.now()
	out := tokenView{
		File: v.file, Verified: verified != nil, Algorithm: u.Algorithm,
		Expired:  !u.Expiry().IsZero() && !now.Before(u.Expiry()),
		TokenSet: c.Token != "", PasswordSet: c.Password != "",
		Secure: c.Secure, URLs: c.PublicURLs(), SRVDomain: c.SRVDomain, Default: c.Default, Registration: c.Registration,
		Facts: c.Facts, Username: c.Username, Organization: c.Organization, ProtocolV2: c.ProtocolV2,
		AllowUpdate: c.AllowUpdate, Purpose: c.Purpose, Limits: u.Limits, Extensions: c.Extensions,
		Issuer: c.Issuer, Subject: c.Subject, Audience: c.Audience, IssuedAt: timeOrNil(c.IssuedAt),
		NotBefore: timeOrNil(c.NotBefore), ExpiresAt: timeOrNil(u.Expiry()), JTI: c.JTI, Other: c.Extra,
	}
	if verified != nil {
		out.TokenID, out.SignerID, out.SignerName = verified.ID, verified.Signer, verified.SignerName
	}
	if v.showSecret {
		out.Token, out.Password = string(c.Token), string(c.Password)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(out) //nolint:gosec // G117: has its secrets only if they were asked for
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
