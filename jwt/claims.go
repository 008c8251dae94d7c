package jwt

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"muster/internal/discover"
	"muster/internal/wire"
)

// Purpose is the value of `purpose` and `sub`. Tokens signed in 2019 have only `sub`.
const Purpose = "choria_provisioning"

// DefaultOrganization is the `ou` of a token without one, as in Choria.
const DefaultOrganization = "choria"

// Claims are the claims of a token, named as in Choria. Times are UTC in whole seconds, zero if absent. They are
// authentic only in a [Verified], not in an [Unverified]. Copies share maps and slices: treat those of a [Verified] as
// read-only.
type Claims struct {
	Token        wire.Secret `json:"-"`
	Secure       bool        `json:"chs"`
	Brokers      string      `json:"chu,omitempty"`
	SRVDomain    string      `json:"chsrv,omitempty"`
	Default      bool        `json:"chpd"`           // provision unless the configuration forbids it
	Registration string      `json:"chrd,omitempty"` // path of the registration data
	Facts        string      `json:"chf,omitempty"`
	Username     string      `json:"chusr,omitempty"`
	Password     wire.Secret `json:"-"`
	Organization string      `json:"ou,omitempty"` // never empty once decoded
	ProtocolV2   bool        `json:"v2,omitempty"`
	AllowUpdate  bool        `json:"update,omitempty"`
	Purpose      string      `json:"purpose,omitempty"`

	// Extensions is free-form; its member "muster" holds [Limits].
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`

	TrustChain      string    `json:"tcs,omitempty"`
	PublicKey       string    `json:"public_key,omitempty"`
	IssuerExpiresAt time.Time `json:"-"` // end of the issuer's own token (issexp)

	Issuer    string    `json:"iss,omitempty"`
	Subject   string    `json:"sub,omitempty"`
	Audience  []string  `json:"-"` // nil if empty (aud)
	ExpiresAt time.Time `json:"-"` // the token is refused from this time on (exp)
	NotBefore time.Time `json:"-"` // the token is accepted from this time on (nbf)
	IssuedAt  time.Time `json:"-"`
	JTI       string    `json:"jti,omitempty"` // the signer's id of the token, any text

	// Extra holds unknown claims by name. They have no effect and are not signed.
	Extra map[string]json.RawMessage `json:"-"`
}

// URLs returns the broker URLs without blanks and empty entries.
func (c *Claims) URLs() []string {
	var urls []string
	for u := range strings.SplitSeq(c.Brokers, ",") {
		if u = strings.TrimSpace(u); u != "" {
			urls = append(urls, u)
		}
	}
	return urls
}

// Provisioning reports whether the claims are those of a provisioning token.
func (c *Claims) Provisioning() bool { return c.Purpose == Purpose || c.Subject == Purpose }

// Expiry returns the time from which the token is refused: its own end or its issuer's, whichever is earlier. Zero
// means never.
func (c *Claims) Expiry() time.Time {
	if c.ExpiresAt.IsZero() || (!c.IssuerExpiresAt.IsZero() && c.IssuerExpiresAt.Before(c.ExpiresAt)) {
		return c.IssuerExpiresAt
	}
	return c.ExpiresAt
}

// Check returns every reason why a node cannot use the claims, as Choria's nodes do. It checks neither times nor the
// signature.
func (c *Claims) Check() error {
	var errs []error
	if !c.Provisioning() {
		errs = append(errs, fmt.Errorf("%w: purpose %.40q, subject %.40q, want %q",
			ErrPurpose, c.Purpose, c.Subject, Purpose))
	}
	if c.Token == "" {
		errs = append(errs, errors.New("no token secret (cht)"))
	}
	urls := c.URLs()
	switch {
	case len(urls) > 0 && c.SRVDomain != "":
		errs = append(errs, errors.New("both broker URLs (chu) and an SRV domain (chsrv), want one of them"))
	case len(urls) == 0 && c.SRVDomain == "":
		errs = append(errs, errors.New("neither broker URLs (chu) nor an SRV domain (chsrv)"))
	}
	for _, u := range urls {
		errs = append(errs, CheckURL(u))
	}
	if c.SRVDomain != "" {
		if _, err := wire.ParseName(c.SRVDomain); err != nil {
			errs = append(errs, fmt.Errorf("SRV domain %.100q is not a host name", c.SRVDomain))
		}
	}
	return errors.Join(errs...)
}

// errUserInURL omits the URL, which may contain a password.
var errUserInURL = errors.New("a broker URL with a user or a password (chu): " +
	"use the claims for them instead (chusr, chpwd)")

// CheckURL checks one broker URL: host:port, optionally after nats://, tls://, ws:// or wss://. It refuses user,
// path, query and fragment.
func CheckURL(s string) error {
	if strings.Contains(s, "@") {
		return errUserInURL
	}
	address := s
	if _, rest, ok := strings.Cut(s, "://"); ok {
		address = rest
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("broker %.100q is not host:port", s)
	}
	_, err := discover.NormalizeURL(s, false)
	return err
}

// LogValue implements [slog.LogValuer]. It omits secrets, extensions and other free text.
func (c Claims) LogValue() slog.Value {
	return slog.GroupValue(
		slog.String("issuer", c.Issuer),
		slog.String("organization", c.Organization),
		slog.Any("token", c.Token),
		slog.String("srv_domain", c.SRVDomain),
		slog.Any("urls", c.URLs()),
		slog.Time("expires", c.Expiry()),
	)
}
