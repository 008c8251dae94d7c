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

// Purpose is the value of the claims `purpose` and `sub` of every provisioning
// token. Tokens of 2019 have only the latter.
const Purpose = "choria_provisioning"

// DefaultOrganization is the `ou` of a token that names none, as in Choria.
const DefaultOrganization = "choria"

// Claims is what a token says. Names and meanings are Choria's; on the token
// each field has the name of its tag, or the one given at the end of its line.
// Instants are in UTC and whole seconds, and zero where the claim is absent. Whether any of it is
// true depends on the type that holds it: [Verified] or [Unverified].
//
// Maps and slices are shared with whatever the Claims were copied from: treat
// those of a [Verified] as read-only.
type Claims struct {
	Token        wire.Secret `json:"-"`                 // shared secret of the node's remote verbs, never logged (cht)
	Secure       bool        `json:"chs"`               // whether the node insists on TLS while it is provisioned
	Brokers      string      `json:"chu,omitempty"`     // broker URLs, comma separated; see URLs
	SRVDomain    string      `json:"chsrv,omitempty"`   // domain whose SRV records name the brokers
	Default      bool        `json:"chpd"`              // provision unless the configuration says not to
	Registration string      `json:"chrd,omitempty"`    // path of the file published as registration data
	Facts        string      `json:"chf,omitempty"`     // path of the facts file
	Username     string      `json:"chusr,omitempty"`   // broker user while provisioning
	Password     wire.Secret `json:"-"`                 // broker password while provisioning, never logged (chpwd)
	Organization string      `json:"ou,omitempty"`      // never empty once decoded
	ProtocolV2   bool        `json:"v2,omitempty"`      // Choria's protocol version 2; kept as found
	AllowUpdate  bool        `json:"update,omitempty"`  // in-place upgrades; kept as found
	Purpose      string      `json:"purpose,omitempty"` // what the token is for; see Provisioning

	// Extensions is free-form; the member "muster" holds [Limits]. Nil if
	// absent or null.
	Extensions map[string]json.RawMessage `json:"extensions,omitempty"`

	TrustChain      string    `json:"tcs,omitempty"`        // Choria's chain of trust; kept as found
	PublicKey       string    `json:"public_key,omitempty"` // hex Ed25519; kept as found
	IssuerExpiresAt time.Time `json:"-"`                    // end of the issuer's own token (issexp)

	Issuer    string    `json:"iss,omitempty"` // the maker, for people
	Subject   string    `json:"sub,omitempty"` // the purpose once more
	Audience  []string  `json:"-"`             // nil if absent or empty (aud)
	ExpiresAt time.Time `json:"-"`             // first instant at which it is refused (exp)
	NotBefore time.Time `json:"-"`             // first instant at which it is accepted (nbf)
	IssuedAt  time.Time `json:"-"`             // (iat)
	JTI       string    `json:"jti,omitempty"` // the signer's own id of the token, any text

	// Extra holds the claims that this package does not know, by name. They
	// have no effect; they are kept so that they can be shown, and are not signed.
	Extra map[string]json.RawMessage `json:"-"`
}

// URLs returns the broker URLs of the token, in order, without blanks and
// empty entries. The result is nil if there are none, and then SRVDomain
// should be set.
func (c *Claims) URLs() []string {
	var urls []string
	for u := range strings.SplitSeq(c.Brokers, ",") {
		if u = strings.TrimSpace(u); u != "" {
			urls = append(urls, u)
		}
	}
	return urls
}

// Provisioning reports whether the claims are those of a provisioning token:
// purpose or subject says so, since tokens of 2019 have no purpose.
func (c *Claims) Provisioning() bool { return c.Purpose == Purpose || c.Subject == Purpose }

// Expiry returns the first instant at which the token is refused: the earlier
// of its own end and its issuer's. Zero means never.
func (c *Claims) Expiry() time.Time {
	if c.ExpiresAt.IsZero() || (!c.IssuerExpiresAt.IsZero() && c.IssuerExpiresAt.Before(c.ExpiresAt)) {
		return c.IssuerExpiresAt
	}
	return c.ExpiresAt
}

// Check reports everything that keeps a node from using the claims, all at
// once: a purpose other than provisioning, no shared secret, neither brokers
// nor a domain or both of them, a broker that is no address. Choria's nodes
// ask for the same. It says nothing about times, nor about authenticity.
func (c *Claims) Check() error {
	var errs []error
	if !c.Provisioning() {
		errs = append(errs, fmt.Errorf("%w: purpose %.40q, subject %.40q, want %q", ErrPurpose, c.Purpose, c.Subject, Purpose))
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
		if err := CheckURL(u); err != nil {
			errs = append(errs, err)
		}
	}
	if c.SRVDomain != "" {
		if _, err := wire.ParseIdentity(strings.TrimSuffix(strings.ToLower(c.SRVDomain), ".")); err != nil {
			errs = append(errs, fmt.Errorf("SRV domain %.100q is not a host name", c.SRVDomain))
		}
	}
	return errors.Join(errs...)
}

// errUserInURL does not show the URL, since that may hold a password.
var errUserInURL = errors.New("a broker URL with a user or a password (chu); those have claims of their own (chusr, chpwd)")

// CheckURL reports what is wrong with one broker URL of a token: host:port,
// optionally after nats://, tls://, ws:// or wss://. The host is a name or an
// IP address; an IPv6 address is in brackets. User, path, query and fragment
// are refused: credentials have claims of their own.
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

// LogValue implements [slog.LogValuer]. It has no secret, no extension and no
// text that only the signer would understand.
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
