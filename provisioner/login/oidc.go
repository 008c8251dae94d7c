package login

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// ErrProvider means that the OpenID Connect provider does not answer as it should.
var ErrProvider = errors.New("the OpenID Connect provider does not answer as it should")

// ErrNoRole means that a person has signed in at the provider, and has no group with a role.
var ErrNoRole = errors.New("none of your groups has a role here (oidc.roles in provisioner.yaml)")

// Settings is `oidc:` in provisioner.yaml.
type Settings struct {
	// An https:// URL, exactly as the provider says it; empty: no signing in by OpenID Connect.
	Issuer string `yaml:"issuer"`

	ClientID string `yaml:"client_id"`

	ClientSecretFile string `yaml:"client_secret_file"`

	// Besides openid, profile and email.
	Scopes []string `yaml:"scopes"`

	// Claims of the ID token.
	GroupsClaim string `yaml:"groups_claim"`
	NameClaim   string `yaml:"name_claim"`

	// PEM file; default the system's.
	CA string `yaml:"ca"`

	// By group. The strongest role counts, at the sites of all groups that have it.
	Roles map[string]GroupRole `yaml:"roles"`
}

// A GroupRole is the role of a group: its name, or a mapping with sites.
type GroupRole struct {
	Role  trust.OperatorRole `yaml:"role"`
	Sites trust.Sites        `yaml:"sites"`
}

// UnmarshalYAML reads both forms. A mapping must have sites: one that is empty by mistake would not limit.
func (g *GroupRole) UnmarshalYAML(unmarshal func(any) error) error {
	if unmarshal(&g.Role) == nil {
		return nil
	}
	type plain GroupRole
	if err := unmarshal((*plain)(g)); err != nil {
		return err
	}
	if g.Sites == nil {
		g.Sites = trust.Sites{}
	}
	return nil
}

// Check validates the role.
func (g *GroupRole) Check() error {
	if g.Role == trust.RoleForeman {
		return errors.New("want a role of people, and not foreman")
	}
	return errors.Join(g.Role.Check(), g.Sites.Check(g.Role))
}

// Files returns the paths.
func (s *Settings) Files() []*string { return []*string{&s.ClientSecretFile, &s.CA} }

const (
	providerTimeout = 10 * time.Second
	discoverAgain   = 5 * time.Second // after a failure
	maxIDToken      = 64 << 10
)

// A Provider is an OpenID Connect provider. It is safe for concurrent use.
type Provider struct {
	Settings

	secret string
	client *http.Client

	mu     sync.Mutex
	found  *oidc.Provider // guarded by mu, as below; nil before it is discovered
	config *oauth2.Config
	tried  time.Time
	err    error
}

// Load reads the files, and sends nothing. It returns nil without an issuer.
func (s *Settings) Load() (*Provider, error) {
	if s.Issuer == "" {
		return nil, nil
	}
	secret, err := keyfile.ReadLine(s.ClientSecretFile, inputfile.Configured)
	err = conffile.Prefix("client_secret_file", err)
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if s.CA != "" {
		roots := x509.NewCertPool()
		text, unread := inputfile.ReadText(s.CA, inputfile.Configured)
		if unread == nil && !roots.AppendCertsFromPEM(text) {
			unread = fmt.Errorf("%s: no certificate in PEM", s.CA)
		}
		err = errors.Join(err, conffile.Prefix("ca", unread))
		transport.TLSClientConfig.RootCAs = roots
	}
	// The client's secret does not follow a redirect.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := &http.Client{Transport: transport, Timeout: providerTimeout, CheckRedirect: stay}
	return &Provider{Settings: *s, secret: string(secret), client: client}, err
}

// discover reads the provider's configuration, once.
func (p *Provider) discover(ctx context.Context) (*oidc.Provider, *oauth2.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil && time.Since(p.tried) > discoverAgain {
		// The provider keeps the context for its keys.
		p.found, p.err = oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.client), p.Issuer)
		if p.tried = time.Now(); p.err == nil {
			p.config = &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.secret, Endpoint: p.found.Endpoint(),
				Scopes: append([]string{oidc.ScopeOpenID, "profile", "email"}, p.Scopes...)}
		}
	}
	if p.found == nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrProvider, p.Issuer, p.err)
	}
	return p.found, p.config, nil
}

// A Flow is one sign-in. Its secret stays in the browser that began it, in a cookie.
type Flow struct {
	Secret   string
	Redirect string // URL of this server to which the provider sends the browser
}

// derived returns a value that tells neither the secret nor another value.
func (f *Flow) derived(what string) string {
	sum := sha256.Sum256([]byte(what + "\x00" + f.Secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Begin returns the provider's page for the flow. The error wraps [ErrProvider].
func (p *Provider) Begin(ctx context.Context, f Flow) (string, error) {
	_, config, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return config.AuthCodeURL(f.derived("state"), oidc.Nonce(f.derived("nonce")),
		oauth2.S256ChallengeOption(f.derived("verifier")), oauth2.SetAuthURLParam("redirect_uri", f.Redirect)), nil
}

// finish verifies what the provider has sent the browser back with, and returns the person with a session to begin.
func (p *Provider) finish(ctx context.Context, f Flow, back url.Values, now func() time.Time,
) (*orders.Sessions, error) {
	found, config, err := p.discover(ctx)
	switch {
	case err != nil:
		return nil, err
	case f.Secret == "" || !same(back.Get("state"), f.derived("state")):
		return nil, errors.New("the state is not that of the sign-in that this browser began")
	case back.Has("iss") && back.Get("iss") != p.Issuer: // RFC 9207
		return nil, fmt.Errorf("answer of issuer %.200q, want %q", back.Get("iss"), p.Issuer)
	case back.Has("error"):
		return nil, fmt.Errorf("the provider refused: %.80q %.200q", back.Get("error"), back.Get("error_description"))
	}
	token, err := config.Exchange(oidc.ClientContext(ctx, p.client), back.Get("code"),
		oauth2.VerifierOption(f.derived("verifier")), oauth2.SetAuthURLParam("redirect_uri", f.Redirect))
	if _, down := errors.AsType[*url.Error](err); down {
		return nil, fmt.Errorf("%w: %w", ErrProvider, err)
	}
	if err != nil {
		return nil, fmt.Errorf("code: %w", err)
	}
	text, _ := token.Extra("id_token").(string)
	if len(text) > maxIDToken {
		return nil, fmt.Errorf("ID token of %d bytes, limit %d", len(text), maxIDToken)
	}
	verified, err := found.Verifier(&oidc.Config{ClientID: p.ClientID, Now: now}).Verify(ctx, text)
	if _, expired := errors.AsType[*oidc.TokenExpiredError](err); expired {
		return nil, &ValidityError{err}
	}
	if err == nil && verified.AccessTokenHash != "" {
		err = verified.VerifyAccessToken(token.AccessToken)
	}
	if err == nil && !same(verified.Nonce, f.derived("nonce")) {
		err = errors.New("the ID token's nonce is not that of the sign-in that this browser began")
	}
	if err != nil {
		return nil, err
	}
	return p.identify(verified, now())
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// maxNameBytes leaves room for the prefix in [trust.Cause].
const maxNameBytes = 150

// identify reads the claims of a verified token.
func (p *Provider) identify(t *oidc.IDToken, now time.Time) (*orders.Sessions, error) {
	var claims map[string]json.RawMessage
	if err := t.Claims(&claims); err != nil {
		return nil, err
	}
	party := textOf(claims["azp"])
	switch {
	case party != "" && party != p.ClientID || party == "" && len(t.Audience) > 1:
		return nil, fmt.Errorf("ID token for party %.80q of %d, want %q", party, len(t.Audience), p.ClientID)
	case t.IssuedAt.After(now.Add(maxSkew)):
		return nil, &ValidityError{fmt.Errorf("the ID token was issued at %s, the time here is %s",
			t.IssuedAt.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	case !shows(t.Subject):
		return nil, fmt.Errorf("subject %.80q, want 1 to %d printable ASCII characters", t.Subject, maxNameBytes)
	}
	s := orders.Session{Name: "oidc:" + t.Subject, Agent: "browser",
		Expires: now.Add(sessionLife).UTC().Truncate(time.Second)}
	claim := cmp.Or(p.NameClaim, "email")
	// An address that its provider has not verified may be another person's.
	verified := claim != "email" || strings.Trim(string(claims["email_verified"]), `"`) == "true"
	if name := textOf(claims[claim]); verified && shows(name) {
		s.Name = "oidc:" + name
	}
	var groups []string
	claimed := claims[cmp.Or(p.GroupsClaim, "groups")]
	if json.Unmarshal(claimed, &groups) != nil { // some providers have one text
		groups = []string{textOf(claimed)}
	}
	s.Role, s.Sites = p.roleOf(groups)
	if s.Role == "" {
		return nil, fmt.Errorf("%w: %q", ErrNoRole, s.Name)
	}
	return &orders.Sessions{Schema: orders.SessionSchema, Person: orders.PersonOf(t.Issuer, t.Subject),
		Issuer: t.Issuer, Sessions: []orders.Session{s}}, nil
}

// roleOf returns the strongest role of the groups, and its sites unless one of them has the role without a limit.
func (p *Provider) roleOf(groups []string) (strongest trust.OperatorRole, sites trust.Sites) {
	for _, group := range groups {
		g := p.Roles[group]
		switch {
		case g.Role == "":
		case g.Role != strongest && g.Role.Covers(strongest) || strongest == "":
			strongest, sites = g.Role, slices.Clone(g.Sites)
		case g.Role == strongest && (sites == nil || g.Sites == nil):
			sites = nil
		case g.Role == strongest:
			sites = append(sites, g.Sites...)
		}
	}
	slices.Sort(sites)
	return strongest, slices.Compact(sites)
}

// maxSkew is how far the provider's clock may be ahead, as for its `nbf`.
const maxSkew = 5 * time.Minute

func shows(name string) bool {
	return name != "" && len(name) <= maxNameBytes &&
		!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

func textOf(claim json.RawMessage) (text string) {
	_ = json.Unmarshal(claim, &text) // of another type: none
	return text
}
