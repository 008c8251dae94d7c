package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/conffile"
	"muster/internal/disk"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/facts"
	"muster/provisioner/login"
	"muster/provisioner/puppet"
	"muster/provisioner/trust"
	"muster/provisioner/webhook"
)

// LongestLifetime bounds certificates.max_lifetime.
const LongestLifetime = 365 * 24 * time.Hour

// Config is provisioner.yaml; docs/reference/provisioner.yaml.md describes each key. Paths are relative to the file's
// directory.
type Config struct {
	// A lower-case host name, reserved.
	Name string `yaml:"name"`

	// TrustDomain is in SPIFFE IDs, and must not change.
	TrustDomain string `yaml:"trust_domain"`

	Site string `yaml:"site"`

	// Used by one process at a time.
	DataDir string `yaml:"data_dir"`

	Store struct {
		// No new nodes are admitted with less free disk space.
		LowWater string `yaml:"low_water"`

		Replicas int `yaml:"replicas"`
	} `yaml:"store"`

	Broker struct {
		Listen string `yaml:"listen"`

		// Comma separated.
		URL string `yaml:"url"`

		External ExternalConfig `yaml:",inline"`

		// Host names that nodes use; reserved.
		Names []string `yaml:"names"`

		Addresses []string `yaml:"addresses"`

		MaxConnections int `yaml:"max_connections"`

		WebSocket struct {
			Listen string `yaml:"listen"`

			// Plain is for a proxy that ends TLS. Through it, nodes can only enroll, sealed.
			Plain bool `yaml:"plain"`
		} `yaml:"websocket"`
	} `yaml:"broker"`

	API APIConfig `yaml:"api"`

	OIDC login.Settings `yaml:"oidc"`

	Health HealthConfig `yaml:"health"`

	Choria ChoriaConfig `yaml:"choria"`

	Puppet puppet.Settings `yaml:"puppet"`

	Tokens struct {
		Signers []SignerConfig `yaml:"signers"`
	} `yaml:"tokens"`

	CA struct {
		Root string `yaml:"root"`

		Certificate string `yaml:"certificate"`

		Key string `yaml:"key"`

		// Newest first, at most two, as `muster ca roll` writes them.
		Previous []PreviousConfig `yaml:"previous"`
	} `yaml:"ca"`

	Keys struct {
		// Default: the systemd credential muster-passphrase, or the terminal.
		PassphraseFile string `yaml:"passphrase_file"`
	} `yaml:"keys"`

	Seal struct {
		// X25519 private keys, PKCS #8 in PEM; new tokens are sealed to the first
		Keys []string `yaml:"keys"`
	} `yaml:"seal"`

	Certificates struct {
		Lifetime conffile.Span `yaml:"lifetime"`

		MaxLifetime conffile.Span `yaml:"max_lifetime"`
	} `yaml:"certificates"`

	CRL struct {
		Validity conffile.Span `yaml:"validity"`
	} `yaml:"crl"`

	Revocations struct {
		// Best on another disk.
		Journal string `yaml:"journal"`
	} `yaml:"revocations"`

	// Rego file or directory, with tests
	Policy string `yaml:"policy"`

	// Compared with Policy; differences are events.
	ShadowPolicy string `yaml:"shadow_policy"`

	// For `muster policy replay`.
	Inputs struct {
		Enabled bool `yaml:"enabled"`

		// Compressed.
		MaxBytes string `yaml:"max_bytes"`
	} `yaml:"inputs"`

	Waiting struct {
		// Shown of pending nodes; at most 64.
		Facts []string `yaml:"facts"`

		// Autosign is Puppet's policy-based autosigning.
		Autosign struct {
			Command []string `yaml:"command"`

			Timeout conffile.Span `yaml:"timeout"`
		} `yaml:"autosign"`
	} `yaml:"waiting"`

	Fleet struct {
		// Kept on record; the same for all provisioners of an installation.
		Facts []string `yaml:"facts"`
	} `yaml:"fleet"`

	// Configuration has one of Template and Helper, for when the policy gives none.
	Configuration struct {
		Template string `yaml:"template"`

		Helper []string `yaml:"helper"`

		Timeout conffile.Span `yaml:"timeout"`
	} `yaml:"configuration"`

	// Per hour; 0: no limit.
	Quotas struct {
		PerToken int `yaml:"per_token"`

		// By address.
		PerSource int `yaml:"per_source"`

		// Failed verifications per second and address.
		VerificationsPerSource int `yaml:"verifications_per_source"`
	} `yaml:"quotas"`

	// Patterns of names.
	Reserved []string `yaml:"reserved"`

	// At most 16.
	Webhooks []WebhookConfig `yaml:"webhooks"`

	path string // of the configuration file
}

// PreviousConfig is an authority that was rolled over.
type PreviousConfig struct {
	Root string `yaml:"root"`

	Certificate string `yaml:"certificate"`

	// Without Key, the authority's certificates are on no CRL.
	Key string `yaml:"key"`

	// Required if the roots differ.
	Cross string `yaml:"cross"`
}

// SignerConfig is one signer of tokens.
type SignerConfig struct {
	// Certificate, public key PEM or hex Ed25519 key.
	File string `yaml:"file"`

	// Default: the file's name without extension.
	Name string `yaml:"name"`

	// Empty: no limit.
	Sites      []string `yaml:"sites"`
	Identities []string `yaml:"identities"`
}

const minInputBytes = 1 << 20

const maxVerifications = 100_000

// A node waits 15 s for its answer, and must learn in time that it is pending.
const maxAutosign = 10 * time.Second

// DefaultConfig returns the configuration of an empty file.
func DefaultConfig() Config {
	var c Config
	c.Certificates.Lifetime = conffile.Span(ca.DefaultTTL)
	c.Certificates.MaxLifetime = conffile.Span(ca.DefaultMaxTTL)
	c.Waiting.Facts = facts.DefaultShown()
	c.Fleet.Facts = facts.DefaultKept()
	c.CRL.Validity = conffile.Span(trust.DefaultCRLValidity)
	c.Configuration.Timeout = conffile.Span(10 * time.Second)
	c.Inputs.Enabled = true
	c.Quotas.PerToken = 500_000
	c.Choria.ComeBack = defaultComeBack
	c.Choria.Renew.PerMinute = defaultChoriaRenewals
	c.Quotas.PerSource = 20_000
	c.Quotas.VerificationsPerSource = provisioner.DefaultChecksPerSecond
	return c
}

// Validate reports all mistakes at once. It reads no file.
func (c *Config) Validate() error {
	v := &Mistakes{}
	v.Name("name", c.Name)
	v.Name("trust_domain", c.TrustDomain)
	v.Required("data_dir", c.DataDir)
	if c.Site != "" {
		v.Site("site", c.Site)
	}
	_, err := disk.ParseSize(c.Store.LowWater)
	v.Check("store.low_water", err)
	c.validateBroker(v)
	c.API.validate(v)
	c.Health.validate(v)
	if len(c.Tokens.Signers) == 0 {
		v.Bad("tokens.signers", "missing: at least one signer is required")
	}
	for i, s := range c.Tokens.Signers {
		s.validate(v, fmt.Sprintf("tokens.signers[%d]", i))
	}
	v.Required("ca.root", c.CA.Root)
	v.Required("ca.certificate", c.CA.Certificate)
	v.Required("ca.key", c.CA.Key)
	for i, p := range c.CA.Previous {
		v.Required(fmt.Sprintf("ca.previous[%d].root", i), p.Root)
		v.Required(fmt.Sprintf("ca.previous[%d].certificate", i), p.Certificate)
		if p.Cross == "" && p.Root != c.CA.Root {
			v.Bad(fmt.Sprintf("ca.previous[%d].cross", i), "missing: required since the root differs from ca.root")
		}
	}
	v.Each("seal.keys", c.Seal.Keys, v.Required)
	within(v, "certificates.max_lifetime", time.Duration(c.Certificates.MaxLifetime), ca.MinTTL, LongestLifetime)
	within(v, "certificates.lifetime", time.Duration(c.Certificates.Lifetime), ca.MinTTL,
		time.Duration(c.Certificates.MaxLifetime))
	within(v, "crl.validity", time.Duration(c.CRL.Validity), trust.MinCRLValidity, trust.MaxCRLValidity)
	v.Required("policy", c.Policy)
	most, err := disk.ParseSize(c.Inputs.MaxBytes)
	if v.Check("inputs.max_bytes", err); err == nil && c.Inputs.MaxBytes != "" && most < minInputBytes {
		v.Bad("inputs.max_bytes", "is %s, want 1MiB or more; to record nothing, set inputs.enabled to false",
			c.Inputs.MaxBytes)
	}
	for _, err := range facts.CheckKept(c.Fleet.Facts) {
		v.Check("fleet.facts", err)
	}
	if n := len(c.Waiting.Facts); n > facts.MaxShown {
		v.Bad("waiting.facts", "has %d, limit %d", n, facts.MaxShown)
	}
	if t := time.Duration(c.Waiting.Autosign.Timeout); t != 0 {
		within(v, "waiting.autosign.timeout", t, 100*time.Millisecond, maxAutosign)
	}
	if c.Configuration.Template != "" && len(c.Configuration.Helper) > 0 {
		v.Bad("configuration.helper", "set together with configuration.template: only one can make the configuration")
	}
	within(v, "configuration.timeout", time.Duration(c.Configuration.Timeout), 100*time.Millisecond, 5*time.Minute)
	within(v, "quotas.per_token", c.Quotas.PerToken, 0, math.MaxInt)
	within(v, "quotas.per_source", c.Quotas.PerSource, 0, math.MaxInt)
	within(v, "quotas.verifications_per_source", c.Quotas.VerificationsPerSource, 0, maxVerifications)
	v.Each("reserved", c.Reserved, v.Pattern)
	c.validateWebhooks(v)
	c.validateChoria(v)
	v.errs = append(v.errs, c.Puppet.Check()...)
	c.validateOIDC(v)
	if c.Puppet.Enabled() {
		v.Listen("puppet.listen", c.Puppet.Listen)
	}
	return v.Err()
}

func within[T cmp.Ordered](v *Mistakes, key string, value, least, most T) {
	if value < least || value > most {
		v.Bad(key, "is %v, want %v to %v", value, least, most)
	}
}

func (c *Config) validateBroker(v *Mistakes) {
	if c.Broker.URL != "" {
		c.validateExternal(v)
	} else {
		v.Listen("broker.listen", c.Broker.Listen)
		if c.Store.Replicas > 1 {
			v.Bad("store.replicas", "is %d, want 1 without broker.url", c.Store.Replicas)
		}
	}
	within(v, "store.replicas", c.Store.Replicas, 0, MaxReplicas)
	if len(c.Broker.Names) == 0 {
		v.Bad("broker.names", "missing: the host names under which nodes reach the broker")
	}
	v.Each("broker.names", c.Broker.Names, v.Name)
	v.Each("broker.addresses", c.Broker.Addresses, v.Address)
	if w := c.Broker.WebSocket; w.Listen != "" {
		v.Listen("broker.websocket.listen", w.Listen)
	} else if w.Plain {
		v.Bad("broker.websocket.plain", "set without broker.websocket.listen")
	}
	within(v, "broker.max_connections", c.Broker.MaxConnections, 0, math.MaxInt)
}

func (c *Config) validateOIDC(v *Mistakes) {
	o := &c.OIDC
	if o.Issuer == "" && o.ClientID == "" && o.ClientSecretFile == "" && len(o.Roles) == 0 {
		return
	}
	if !strings.HasPrefix(o.Issuer, "https://") {
		v.Bad("oidc.issuer", "is %q, want the https:// URL of the provider", o.Issuer)
	}
	v.Required("oidc.client_id", o.ClientID)
	v.Required("oidc.client_secret_file", o.ClientSecretFile)
	if c.API.Listen == "" {
		v.Bad("oidc.issuer", "set without api.listen, where operators sign in")
	}
	if len(o.Roles) == 0 {
		v.Bad("oidc.roles", "missing: groups and their roles, for example fleet-admins: admin")
	}
	for group, role := range o.Roles {
		if err := role.Check(); err != nil {
			v.Bad("oidc.roles", "%q has %q: %v", group, role.Role, err)
		}
	}
}

func (s *SignerConfig) validate(v *Mistakes, key string) {
	v.Required(key+".file", s.File)
	v.Each(key+".sites", s.Sites, v.Site)
	v.Each(key+".identities", s.Identities, v.Pattern)
}

func (s *SignerConfig) name() string {
	base := filepath.Base(s.File)
	return cmp.Or(s.Name, strings.TrimSuffix(base, filepath.Ext(base)))
}

// files returns the files that decide which nodes the provisioner admits, and how, besides the policies.
func (c *Config) files() []*string {
	paths := []*string{&c.CA.Root, &c.CA.Certificate, &c.CA.Key, &c.Keys.PassphraseFile, &c.Configuration.Template,
		&c.API.Certificate, &c.API.Key}
	for i := range c.Tokens.Signers {
		paths = append(paths, &c.Tokens.Signers[i].File)
	}
	for i := range c.CA.Previous {
		p := &c.CA.Previous[i]
		paths = append(paths, &p.Root, &p.Certificate, &p.Key, &p.Cross)
	}
	for i := range c.Seal.Keys {
		paths = append(paths, &c.Seal.Keys[i])
	}
	for i := range c.Webhooks {
		paths = append(paths, &c.Webhooks[i].Secret, &c.Webhooks[i].CA)
	}
	return slices.Concat(paths, c.Broker.External.paths(), c.Choria.paths(), c.Puppet.Files(),
		c.OIDC.Files())
}

func (c *Config) writtenNames() [][]string {
	all := [][]string{c.Broker.Names, c.API.Names, c.Puppet.Names, c.Reserved}
	for i := range c.Tokens.Signers {
		all = append(all, c.Tokens.Signers[i].Identities)
	}
	return all
}

func (c *Config) resolve(path string) {
	c.path = path
	if c.Broker.Listen == "" && c.Broker.URL == "" {
		c.Broker.Listen = "127.0.0.1:4222"
	}
	if c.Store.Replicas == 0 && c.Broker.URL != "" {
		c.Store.Replicas = 3
	}
	for _, names := range c.writtenNames() {
		for i := range names {
			names[i] = wire.FoldName(names[i])
		}
	}
	c.Name, c.TrustDomain = wire.FoldName(c.Name), wire.FoldName(c.TrustDomain)
	for _, p := range append(c.files(), &c.DataDir, &c.Policy, &c.ShadowPolicy, &c.Revocations.Journal) {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
}

var userInfo = regexp.MustCompile(`://[^/\s@]*@`)

// shown returns the configuration as YAML without what may be secret: users in URLs, paths of webhooks, and arguments
// of commands. Keys, tokens and passphrases are in files, whose paths are shown.
func (c Config) shown() (string, error) {
	c.Webhooks = slices.Clone(c.Webhooks)
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		if u, err := webhook.ParseURL(w.URL); err == nil { // validated
			w.URL = u.Scheme + "://" + u.Host + "/" + policies.Redacted
		}
	}
	for _, command := range []*[]string{&c.Configuration.Helper, &c.Waiting.Autosign.Command} {
		if len(*command) > 1 {
			*command = []string{(*command)[0], policies.Redacted}
		}
	}
	text, err := conffile.MarshalYAML(c)
	return userInfo.ReplaceAllLiteralString(text, "://"+policies.Redacted+"@"), err
}

// ReadConfig reads and validates a configuration file.
func ReadConfig(path string) (Config, error) { return readConfig(path, nil) }

// readConfig is ReadConfig, but edit, if not nil, first changes the configuration.
func readConfig(path string, edit func(*Config)) (Config, error) {
	cfg, err := readUnchecked(path)
	if err != nil {
		return Config{}, err
	}
	if edit != nil {
		edit(&cfg)
	}
	if err := cfg.Validate(); err != nil {
		return Config{}, conffile.Prefix(path, err)
	}
	return cfg, nil
}

// readUnchecked does not validate.
func readUnchecked(path string) (Config, error) {
	cfg := DefaultConfig()
	if err := conffile.LoadYAML(path, inputfile.Configured, &cfg); err != nil {
		return Config{}, err
	}
	cfg.resolve(path)
	return cfg, nil
}

// Mistakes collects the errors of a configuration by key.
type Mistakes struct{ errs []error }

// Err returns all of them, or nil.
func (v *Mistakes) Err() error { return errors.Join(v.errs...) }

// Bad adds a mistake.
func (v *Mistakes) Bad(key, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

// Check adds err, unless it is nil.
func (v *Mistakes) Check(key string, err error) { v.errs = append(v.errs, conffile.Prefix(key, err)) }

// Required refuses an empty value.
func (v *Mistakes) Required(key, value string) {
	if value == "" {
		v.Bad(key, "missing")
	}
}

// Name checks for a lower-case host name.
func (v *Mistakes) Name(key, value string) {
	if v.Required(key, value); value != "" {
		_, err := wire.ParseIdentity(value)
		v.Check(key, err)
	}
}

// Listen checks for [address]:port.
func (v *Mistakes) Listen(key, value string) {
	host, port, err := net.SplitHostPort(value)
	n, perr := strconv.Atoi(port)
	if err != nil || perr != nil || n < 0 || n > 65535 || host != "" && net.ParseIP(host) == nil {
		v.Bad(key,
			"is %q, want an IP address (or nothing), a colon and a port of 0 to 65535, like 127.0.0.1:4222", value)
	}
}

// Address checks for an IP address.
func (v *Mistakes) Address(key, value string) {
	if net.ParseIP(value) == nil {
		v.Bad(key, "is %q, want an IP address", value)
	}
}

// Site checks for the name of a site.
func (v *Mistakes) Site(key, value string) {
	_, err := jwt.ParseSite(value)
	v.Check(key, err)
}

// Pattern checks for a pattern of names.
func (v *Mistakes) Pattern(key, value string) {
	_, err := wire.ParsePattern(value)
	v.Check(key, err)
}

// Each checks the values of a list.
func (v *Mistakes) Each(key string, values []string, check func(key, value string)) {
	for i, value := range values {
		check(fmt.Sprintf("%s[%d]", key, i), value)
	}
}
