package login

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

	// By group. The strongest role counts.
	Roles map[string]trust.OperatorRole `yaml:"roles"`
}

// Files returns the paths.
func (s *Settings) Files() []*string { return []*string{&s.ClientSecretFile, &s.CA} }

// Check lists the mistakes, each with its key. It reads no file.
func (s *Settings) Check() (errs []error) {
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("oidc."+key+": "+format, args...))
	}
	if s.Issuer == "" {
		if s.ClientID != "" || s.ClientSecretFile != "" || len(s.Roles) > 0 {
			bad("issuer", "missing, but other oidc keys are set")
		}
		return errs
	}
	if u, err := url.Parse(s.Issuer); err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.ContainsAny(s.Issuer, "?#") {
		bad("issuer", "want https://HOST with a port and a path, if any")
	}
	if s.ClientID == "" {
		bad("client_id", "missing: the provider gives it to the client that is registered for muster")
	}
	if s.ClientSecretFile == "" {
		bad("client_secret_file", "missing: a file with the secret of the client")
	}
	if len(s.Roles) == 0 {
		bad("roles", "missing: a group and its role, for example fleet-admins: admin")
	}
	for group, role := range s.Roles {
		if err := role.Check(); err != nil || role == trust.RoleForeman {
			bad("roles", "%.80q has %.40q, want a role of operators: viewer, operator or admin", group, role)
		}
	}
	return errs
}

// maxAnswer bounds an answer of the provider, with its keys or a token.
const maxAnswer = 256 << 10

const (
	providerTimeout = 10 * time.Second
	discoverAgain   = 5 * time.Second // after a failure
)

// A Provider is an OpenID Connect provider. It is safe for concurrent use.
type Provider struct {
	Settings

	secret string
	client *http.Client

	mu     sync.Mutex
	config *oauth2.Config // guarded by mu, as below; nil before the provider is discovered
	found  *oidc.Provider
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
	return &Provider{Settings: *s, secret: string(secret), client: &http.Client{
		Transport: bounded{transport},
		Timeout:   providerTimeout,
		// The client's secret does not follow a redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, err
}

type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// discover reads the provider's configuration, once.
func (p *Provider) discover() (*oidc.Provider, *oauth2.Config, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found == nil && time.Since(p.tried) > discoverAgain {
		// The provider keeps the context for its keys.
		p.found, p.err = oidc.NewProvider(oidc.ClientContext(context.Background(), p.client), p.Issuer)
		p.tried = time.Now()
	}
	if p.found == nil {
		return nil, nil, fmt.Errorf("%w: %s: %w", ErrProvider, p.Issuer, p.err)
	}
	if p.config == nil { // it remembers how the client authenticates
		p.config = &oauth2.Config{
			ClientID:     p.ClientID,
			ClientSecret: p.secret,
			Endpoint:     p.found.Endpoint(),
			Scopes:       append([]string{oidc.ScopeOpenID, "profile", "email"}, p.Scopes...),
		}
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
func (p *Provider) Begin(f Flow) (string, error) {
	_, config, err := p.discover()
	if err != nil {
		return "", err
	}
	return config.AuthCodeURL(f.derived("state"), oidc.Nonce(f.derived("nonce")),
		oauth2.S256ChallengeOption(f.derived("verifier")), oauth2.SetAuthURLParam("redirect_uri", f.Redirect)), nil
}

// finish verifies what the provider has sent the browser back with, and gets the person's ID token.
func (p *Provider) finish(ctx context.Context, f Flow, back url.Values, now func() time.Time) (*identity, error) {
	found, config, err := p.discover()
	if err != nil {
		return nil, err
	}
	switch {
	case f.Secret == "" || subtle.ConstantTimeCompare([]byte(back.Get("state")), []byte(f.derived("state"))) != 1:
		return nil, errors.New("the state is not that of the sign-in that this browser began")
	case back.Has("iss") && back.Get("iss") != p.Issuer: // RFC 9207
		return nil, fmt.Errorf("answer of issuer %.200q, want %q", back.Get("iss"), p.Issuer)
	case back.Get("error") != "":
		return nil, fmt.Errorf("the provider refused: %.80q %.200q", back.Get("error"), back.Get("error_description"))
	}
	token, err := config.Exchange(oidc.ClientContext(ctx, p.client), back.Get("code"),
		oauth2.VerifierOption(f.derived("verifier")), oauth2.SetAuthURLParam("redirect_uri", f.Redirect))
	if err != nil {
		return nil, fmt.Errorf("code: %w", err)
	}
	text, _ := token.Extra("id_token").(string)
	verified, err := found.Verifier(&oidc.Config{ClientID: p.ClientID, Now: now}).Verify(ctx, text)
	if _, expired := errors.AsType[*oidc.TokenExpiredError](err); expired {
		return nil, &ValidityError{err}
	} else if err != nil {
		return nil, err
	}
	if verified.AccessTokenHash != "" {
		if err := verified.VerifyAccessToken(token.AccessToken); err != nil {
			return nil, err
		}
	}
	if subtle.ConstantTimeCompare([]byte(verified.Nonce), []byte(f.derived("nonce"))) != 1 {
		return nil, errors.New("the ID token's nonce is not that of the sign-in that this browser began")
	}
	return p.identify(verified, now())
}

// An identity is a person as the ID token says.
type identity struct {
	sessions *orders.Sessions // none
	name     string
	role     trust.OperatorRole
	expires  time.Time
}

// maxNameBytes leaves room for the prefix in [trust.Cause].
const maxNameBytes = 150

// identify reads the claims of a verified token.
func (p *Provider) identify(t *oidc.IDToken, now time.Time) (*identity, error) {
	var claims map[string]json.RawMessage
	if err := t.Claims(&claims); err != nil {
		return nil, err
	}
	party := textOf(claims["azp"])
	switch {
	case party != "" && party != p.ClientID || party == "" && len(t.Audience) > 1:
		return nil, fmt.Errorf("ID token for the party %.80q among %d audiences, want %q", party, len(t.Audience),
			p.ClientID)
	case t.IssuedAt.After(now.Add(maxSkew)):
		return nil, &ValidityError{fmt.Errorf("the ID token was issued at %s, the time here is %s",
			t.IssuedAt.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))}
	case !shows(t.Subject):
		return nil, fmt.Errorf("subject %.80q, want 1 to %d printable ASCII characters", t.Subject, maxNameBytes)
	}
	i := &identity{name: t.Subject, expires: t.Expiry, sessions: &orders.Sessions{
		Schema:  orders.SessionSchema,
		Person:  orders.PersonOf(t.Issuer, t.Subject),
		Issuer:  t.Issuer,
		Subject: t.Subject,
	}}
	claim := cmp.Or(p.NameClaim, "email")
	// An address that its provider has not verified may be another person's.
	verified := claim != "email" || bytes.Equal(bytes.Trim(claims["email_verified"], `"`), []byte("true"))
	if name := textOf(claims[claim]); verified && shows(name) {
		i.name = name
	}
	groups, err := listOf(claims[cmp.Or(p.GroupsClaim, "groups")])
	for _, group := range groups {
		if role := p.Roles[group]; slices.Index(trust.OperatorRoles(), role) >
			slices.Index(trust.OperatorRoles(), i.role) {
			i.role = role
		}
	}
	if i.role == "" {
		err = errors.Join(err, fmt.Errorf("%w: %q", ErrNoRole, i.name))
	}
	return i, err
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

// listOf returns a list of texts, or one text, as some providers have it.
func listOf(claim json.RawMessage) (list []string, err error) {
	if text := textOf(claim); text != "" {
		return []string{text}, nil
	}
	if len(claim) > 0 {
		err = json.Unmarshal(claim, &list)
	}
	return list, err
}
