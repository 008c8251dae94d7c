package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muster/internal/conffile"
	"muster/internal/disk"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/facts"
	"muster/provisioner/trust"
)

// LongestLifetime bounds what certificates.max_lifetime may say. Chosen: nothing
// that is renewed on its own needs a longer one.
const LongestLifetime = 365 * 24 * time.Hour

// Config is provisioner.yaml: everything that can be set is here, and nothing
// is read from anywhere else.
//
// Durations are written like "90s" or "720h". Paths are relative to the
// directory of the configuration file.
type Config struct {
	// Name is the name of this provisioner and its broker, a lower-case host
	// name. Required. It is reserved: no node gets it.
	Name string `yaml:"name"`

	// TrustDomain is the first part of every certificate's SPIFFE ID,
	// spiffe://<trust_domain>/node/<identity>: a lower-case host name that no
	// other installation has. Required, and never changed once nodes have
	// certificates.
	TrustDomain string `yaml:"trust_domain"`

	// Site is where this provisioner stands, and with it its brokers, unless
	// they say another site themselves. Tokens signed for another --site are
	// refused. Optional; without it, every token bound to a site is.
	Site string `yaml:"site"`

	// DataDir holds the broker's store: records, events, grants. Required. One
	// process uses it at a time.
	DataDir string `yaml:"data_dir"`

	// Store is what the provisioner keeps, in DataDir.
	Store struct {
		// LowWater is how much of its disk must be free for new identities to be
		// let in, like "512MiB"; those on record go on below it. Optional; the
		// default is a twentieth of the disk, at most 512MiB.
		LowWater string `yaml:"low_water"`

		// Replicas is on how many servers of broker.url each record is, 1 to 5. A
		// store that has more keeps them. Defaults to 3, and without broker.url
		// to the 1 that there is.
		Replicas int `yaml:"replicas"`
	} `yaml:"store"`

	// Broker is the NATS server inside this process, or those that it uses
	// instead: at most one of Listen and URL.
	Broker struct {
		// Listen is the address of the one port for nodes, plain and TLS.
		// Defaults to "127.0.0.1:4222": reaching nodes takes a decision.
		Listen string `yaml:"listen"`

		// URL are servers outside of this process, tls://host:port or
		// nats://host:port, comma separated. One is enough to find the others.
		URL string `yaml:"url"`

		// External is how the servers of URL are reached.
		External ExternalConfig `yaml:",inline"`

		// Names are the host names under which nodes reach the broker, as in
		// the token's URLs or the targets of its SRV records. They are in its
		// certificate, and reserved. Required.
		Names []string `yaml:"names"`

		// Addresses are IP addresses under which nodes reach the broker, for
		// tokens whose URLs have no names. Optional.
		Addresses []string `yaml:"addresses"`

		// MaxConnections bounds connections; each is a file descriptor.
		// Optional; the default is the broker's.
		MaxConnections int `yaml:"max_connections"`

		// WebSocket is one more port, for nodes behind a proxy that lets nothing
		// else through. Optional.
		WebSocket struct {
			// Listen is its address, like ":443". Empty is none.
			Listen string `yaml:"listen"`

			// Plain takes connections without TLS on it, from a proxy that ends
			// TLS. Nodes enroll through that, sealed; they do not join the fleet,
			// since the proxy does not pass on their certificates.
			Plain bool `yaml:"plain"`
		} `yaml:"websocket"`
	} `yaml:"broker"`

	// API is where operators on other machines reach this provisioner, over HTTPS.
	API APIConfig `yaml:"api"`

	// Tokens says whose tokens are good.
	Tokens struct {
		// Signers lists who may sign tokens. Required: at least one.
		Signers []SignerConfig `yaml:"signers"`
	} `yaml:"tokens"`

	// CA is the certificate authority, as `muster provisioner init` makes it.
	CA struct {
		// Root is the root certificate, PEM. Required.
		Root string `yaml:"root"`

		// Certificate is the issuing certificate, PEM. Required.
		Certificate string `yaml:"certificate"`

		// Key is the key of the issuing certificate, PEM, readable by the
		// provisioner only. Required.
		Key string `yaml:"key"`

		// Previous are the authorities that this one has taken over from, the
		// newest first, at most two. Optional; `muster ca roll` writes it, and
		// the log says when it can go.
		Previous []PreviousConfig `yaml:"previous"`
	} `yaml:"ca"`

	// Keys says how private keys are read.
	Keys struct {
		// PassphraseFile holds the passphrase of encrypted keys, in one line,
		// readable by the provisioner only. Optional; without it, it is the
		// systemd credential muster-passphrase, or asked for on the terminal.
		PassphraseFile string `yaml:"passphrase_file"`
	} `yaml:"keys"`

	// Seal holds the keys to which tokens seal their nodes' requests.
	Seal struct {
		// Keys are X25519 private keys, PKCS #8 in PEM, readable by the
		// provisioner only, as `openssl genpkey -algorithm X25519` makes them. Each
		// opens what is sealed to it; new tokens are for the first. Optional:
		// without one, tokens that ask for sealing are refused.
		Keys []string `yaml:"keys"`
	} `yaml:"seal"`

	// Certificates sets what nodes get unless the policy says otherwise.
	Certificates struct {
		// Lifetime is 1m to max_lifetime. Defaults to 720h.
		Lifetime conffile.Span `yaml:"lifetime"`

		// MaxLifetime is the most that a policy may ask for, up to 8760h, [LongestLifetime].
		// Defaults to 2160h.
		MaxLifetime conffile.Span `yaml:"max_lifetime"`
	} `yaml:"certificates"`

	// CRL is the list of revoked certificates, data_dir/crl.pem.
	CRL struct {
		// Validity is how long each list is valid, 10m to 720h; the next is signed
		// when half of it has passed. Defaults to 24h.
		Validity conffile.Span `yaml:"validity"`
	} `yaml:"crl"`

	// Revocations is what is kept of them outside the store.
	Revocations struct {
		// Journal is a file to which every revocation, use of a limited token and
		// name that changes hands is appended, so that a store restored from a
		// backup forgets none. Best on another disk, in a
		// directory that exists. Defaults to revocations.journal in data_dir.
		Journal string `yaml:"journal"`
	} `yaml:"revocations"`

	// Policy is a Rego file or a directory of them, with their tests. Required.
	Policy string `yaml:"policy"`

	// ShadowPolicy is a Rego file or a directory of them, evaluated beside Policy, on no
	// request's way: what it would decide otherwise is an event, and nothing else.
	// Read again when it changes. Optional.
	ShadowPolicy string `yaml:"shadow_policy"`

	// Inputs is what the policy's decisions saw, kept so that another policy can
	// be tried on it: `muster policy replay`.
	Inputs struct {
		// Enabled records them. Defaults to true.
		Enabled bool `yaml:"enabled"`

		// MaxBytes bounds them on disk, compressed, like "256MiB", 1MiB or more; the
		// oldest go first. Defaults to 256MiB.
		MaxBytes string `yaml:"max_bytes"`
	} `yaml:"inputs"`

	// Waiting is about nodes that wait for an operator, or until the policy no
	// longer puts them off.
	Waiting struct {
		// Facts are those that operators see of them, in `muster node pending`, by
		// name; a dot leads into an object. At most 64. All others are only for the
		// policy, since they may be secrets. Defaults to what tells machines apart:
		// serial numbers, addresses, operating system.
		Facts []string `yaml:"facts"`

		// Autosign is asked where the policy wants an approval, by the contract of
		// Puppet's policy-based autosigning: the node's name is the last argument,
		// the certificate request in PEM on stdin, and exit status 0 is a yes.
		// Anything else leaves the node waiting for a person.
		Autosign struct {
			// Command is a program and its arguments, as of configuration.helper. Optional.
			Command []string `yaml:"command"`

			// Timeout bounds one run, 100ms to 10s. Defaults to 10s.
			Timeout conffile.Span `yaml:"timeout"`
		} `yaml:"autosign"`
	} `yaml:"waiting"`

	// Fleet is what is kept of nodes with their records.
	Fleet struct {
		// Facts are those by which operators find nodes, as in `muster node list
		// --fact os.name=Debian`, by name; a dot leads into an object. At most 16, with
		// names of at most 64 bytes. Kept are texts of one line, numbers and truth
		// values of at most 128 bytes, when a node enrolls, renews or is reconfigured;
		// every viewer sees them. [] keeps none. Defaults to os.name, os.release.full,
		// role, environment, datacenter and rack. All provisioners of an installation
		// are to name the same.
		Facts []string `yaml:"facts"`
	} `yaml:"fleet"`

	// Configuration is where a node's server.conf comes from if the policy
	// gives none. At most one of Template and Helper.
	Configuration struct {
		// Template is a server.conf with Go template actions. Optional.
		Template string `yaml:"template"`

		// Helper is a program and its arguments. It gets the request as JSON on stdin and
		// answers with JSON on stdout, as Choria's provisioner runs it. A
		// program without a slash is looked up in PATH. Optional.
		Helper []string `yaml:"helper"`

		// Timeout bounds one run of the helper, 100ms to 5m. Defaults to 10s.
		Timeout conffile.Span `yaml:"timeout"`
	} `yaml:"configuration"`

	// Quotas bound how many never-seen identities are let in per hour; 0 is no
	// bound. A token lies on every node: whoever has it can make up names.
	Quotas struct {
		// PerToken defaults to 500000.
		PerToken int `yaml:"per_token"`

		// PerSource, by address, defaults to 20000.
		PerSource int `yaml:"per_source"`

		// VerificationsPerSource is how many tokens a second may turn out forged
		// or damaged by address, or by /64 of IPv6, before more of them are told
		// to come back: up to 100000, 0 is no bound. Four seconds' worth can come
		// at once. Tokens that were good before are not counted. Defaults to 50.
		VerificationsPerSource int `yaml:"verifications_per_source"`
	} `yaml:"quotas"`

	// Reserved are more names that no node may have, patterns like
	// "*.privileged.example.net". Optional. Names of brokers and provisioners
	// and those in tokens' URLs and SRV records are reserved anyway.
	Reserved []string `yaml:"reserved"`

	// Webhooks are told of events, at most 16. Optional.
	Webhooks []WebhookConfig `yaml:"webhooks"`

	dir string // of the configuration file, for programs beside it
}

// PreviousConfig is a certificate authority that was rolled over.
type PreviousConfig struct {
	// Root is its root certificate, PEM. Required.
	Root string `yaml:"root"`

	// Certificate is its issuing certificate, PEM. Required.
	Certificate string `yaml:"certificate"`

	// Key is the key of its issuing certificate, PEM, readable by the provisioner
	// only. Optional; without it, certificates of this authority that are revoked
	// are on no CRL.
	Key string `yaml:"key"`

	// Cross are the certificates by which its root and the present one vouch
	// for each other, PEM. Required unless Root is the present one.
	Cross string `yaml:"cross"`
}

// SignerConfig is one signer of tokens.
type SignerConfig struct {
	// File is the signer's certificate, public key PEM or hex Ed25519 key.
	// Required.
	File string `yaml:"file"`

	// Name is what logs and policies call the signer. Defaults to the file's
	// name without its ending.
	Name string `yaml:"name"`

	// Sites and Identities limit what the signer's tokens are good for, whatever
	// the tokens themselves say. Absent is no limit, and a list that is there
	// has something in it.
	Sites      []string `yaml:"sites"`
	Identities []string `yaml:"identities"`
}

// minInputBytes is a few batches of inputs.
const minInputBytes = 1 << 20

// maxVerifications bounds a bound: beyond it there is none.
const maxVerifications = 100_000

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
	c.Quotas.PerSource = 20_000
	c.Quotas.VerificationsPerSource = provisioner.DefaultChecksPerSecond
	return c
}

// Validate reports everything wrong with c at once, each line naming the key as
// it is spelled in the file. It reads no file and opens no connection.
func (c *Config) Validate() error {
	v := &Mistakes{}
	v.Name("name", c.Name)
	v.Name("trust_domain", c.TrustDomain)
	v.Required("data_dir", c.DataDir)
	if c.Site != "" {
		_, err := jwt.ParseSite(c.Site)
		v.Check("site", err)
	}
	_, err := disk.ParseSize(c.Store.LowWater)
	v.Check("store.low_water", err)
	c.validateBroker(v)
	c.API.validate(v)
	if len(c.Tokens.Signers) == 0 {
		v.Bad("tokens.signers", "missing: without a signer no token is good")
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
			v.Bad(fmt.Sprintf("ca.previous[%d].cross", i), "missing: the root is another than ca.root, and must vouch for it")
		}
	}
	for i, k := range c.Seal.Keys {
		v.Required(fmt.Sprintf("seal.keys[%d]", i), k)
	}
	within(v, "certificates.max_lifetime", time.Duration(c.Certificates.MaxLifetime), ca.MinTTL, LongestLifetime)
	within(v, "certificates.lifetime", time.Duration(c.Certificates.Lifetime), ca.MinTTL,
		time.Duration(c.Certificates.MaxLifetime))
	within(v, "crl.validity", time.Duration(c.CRL.Validity), trust.MinCRLValidity, trust.MaxCRLValidity)
	v.Required("policy", c.Policy)
	most, err := disk.ParseSize(c.Inputs.MaxBytes)
	if v.Check("inputs.max_bytes", err); err == nil && c.Inputs.MaxBytes != "" && most < minInputBytes {
		v.Bad("inputs.max_bytes", "is %s, want 1MiB or more; enabled: false records nothing", c.Inputs.MaxBytes)
	}
	for _, err := range facts.CheckKept(c.Fleet.Facts) {
		v.Check("fleet.facts", err)
	}
	if n := len(c.Waiting.Facts); n > facts.MaxShown {
		v.Bad("waiting.facts", "has %d, limit %d", n, facts.MaxShown)
	}
	if c.Configuration.Template != "" && len(c.Configuration.Helper) > 0 {
		v.Bad("configuration.helper", "set together with configuration.template: only one can make the configuration")
	}
	within(v, "configuration.timeout", time.Duration(c.Configuration.Timeout), 100*time.Millisecond, 5*time.Minute)
	within(v, "quotas.per_token", c.Quotas.PerToken, 0, math.MaxInt)
	within(v, "quotas.per_source", c.Quotas.PerSource, 0, math.MaxInt)
	within(v, "quotas.verifications_per_source", c.Quotas.VerificationsPerSource, 0, maxVerifications)
	v.Patterns("reserved", c.Reserved)
	c.validateWebhooks(v)
	return v.Err()
}

// within wants a value between two others.
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
			v.Bad("store.replicas", "is %d, and without broker.url there is one server", c.Store.Replicas)
		}
	}
	within(v, "store.replicas", c.Store.Replicas, 0, MaxReplicas)
	if len(c.Broker.Names) == 0 {
		v.Bad("broker.names", "missing: the host names under which nodes reach the broker")
	}
	for i, n := range c.Broker.Names {
		v.Name(fmt.Sprintf("broker.names[%d]", i), n)
	}
	for i, a := range c.Broker.Addresses {
		v.Address(fmt.Sprintf("broker.addresses[%d]", i), a)
	}
	if w := c.Broker.WebSocket; w.Listen != "" {
		v.Listen("broker.websocket.listen", w.Listen)
	} else if w.Plain {
		v.Bad("broker.websocket.plain", "set without broker.websocket.listen")
	}
	within(v, "broker.max_connections", c.Broker.MaxConnections, 0, math.MaxInt)
}

func (s *SignerConfig) validate(v *Mistakes, key string) {
	v.Required(key+".file", s.File)
	for i, site := range s.Sites {
		_, err := jwt.ParseSite(site)
		v.Check(fmt.Sprintf("%s.sites[%d]", key, i), err)
	}
	v.Patterns(key+".identities", s.Identities)
}

// name is what logs call the signer.
func (s *SignerConfig) name() string {
	base := filepath.Base(s.File)
	return cmp.Or(s.Name, strings.TrimSuffix(base, filepath.Ext(base)))
}

// resolve makes every path relative to dir, the configuration file's directory,
// and fills in what depends on other values.
func (c *Config) resolve(dir string) {
	c.dir = dir
	if c.Broker.Listen == "" && c.Broker.URL == "" {
		c.Broker.Listen = "127.0.0.1:4222"
	}
	if c.Store.Replicas == 0 && c.Broker.URL != "" {
		c.Store.Replicas = 3
	}
	paths := []*string{&c.DataDir, &c.CA.Root, &c.CA.Certificate, &c.CA.Key, &c.Keys.PassphraseFile, &c.Policy, &c.ShadowPolicy, &c.Configuration.Template,
		&c.Revocations.Journal, &c.API.Certificate, &c.API.Key}
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
	paths = append(paths, c.Broker.External.paths()...)
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// ReadConfig reads a configuration file and checks it. Paths in it are made
// those of files.
func ReadConfig(path string) (Config, error) {
	cfg, err := readForm(path)
	if err != nil {
		return Config{}, err
	}
	if err := cfg.Validate(); err != nil {
		return Config{}, conffile.Prefix(path, err)
	}
	return cfg, nil
}

// readForm reads a configuration file of which only the form is checked.
func readForm(path string) (Config, error) {
	cfg := DefaultConfig()
	if err := conffile.LoadYAML(path, &cfg); err != nil {
		return Config{}, err
	}
	cfg.resolve(filepath.Dir(path))
	return cfg, nil
}

// Mistakes collects what is wrong with a configuration, by the key or flag that says it.
type Mistakes struct{ errs []error }

// Err returns all of them, or nil.
func (v *Mistakes) Err() error { return errors.Join(v.errs...) }

// Bad says what is wrong with the value of key.
func (v *Mistakes) Bad(key, format string, args ...any) {
	v.errs = append(v.errs, fmt.Errorf("%s: %s", key, fmt.Sprintf(format, args...)))
}

// Check takes in err, unless it is nil.
func (v *Mistakes) Check(key string, err error) {
	if err != nil {
		v.errs = append(v.errs, conffile.Prefix(key, err))
	}
}

// Required wants a value.
func (v *Mistakes) Required(key, value string) {
	if value == "" {
		v.Bad(key, "missing")
	}
}

// Name wants a lower-case host name.
func (v *Mistakes) Name(key, value string) {
	if v.Required(key, value); value != "" {
		_, err := wire.ParseIdentity(value)
		v.Check(key, err)
	}
}

// Listen wants an IP address, or none, and a port.
func (v *Mistakes) Listen(key, value string) {
	host, port, err := net.SplitHostPort(value)
	n, perr := strconv.Atoi(port)
	if err != nil || perr != nil || n < 0 || n > 65535 || host != "" && net.ParseIP(host) == nil {
		v.Bad(key, "is %q, want an IP address (or nothing), a colon and a port of 0 to 65535, like 127.0.0.1:4222", value)
	}
}

// Address wants an IP address.
func (v *Mistakes) Address(key, value string) {
	if net.ParseIP(value) == nil {
		v.Bad(key, "is %q, want an IP address", value)
	}
}

// Patterns wants patterns of names.
func (v *Mistakes) Patterns(key string, values []string) {
	for i, p := range values {
		_, err := wire.ParsePattern(p)
		v.Check(fmt.Sprintf("%s[%d]", key, i), err)
	}
}
