package daemon

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/reserved"
	"muster/internal/seal"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/broker"
	"muster/provisioner/ca"
	"muster/provisioner/choria"
	"muster/provisioner/helper"
	"muster/provisioner/login"
	"muster/provisioner/puppet"
	"muster/provisioner/webhook"
)

type parts struct {
	site         jwt.Site
	signers      []jwt.Signer // of provisioner.yaml
	authority    *ca.Authority
	broker       *shownCertificate // also shown to external brokers
	replies      *replyKey
	api          *shownCertificate // may be nil
	brokerKeys   broker.Keys       // only of external brokers
	policy       *policies.Engine
	shadow       *policies.Engine // may be nil
	preview      *provisioner.Preview
	reserved     *reserved.Names
	configurator provisioner.Configurator // nil if only the policy configures
	helper       *helper.Helper           // the configurator, or nil
	autosign     *helper.Helper           // may be nil
	opener       *seal.Opener             // nil without a seal key
	sealKeys     []*seal.PrivateKey       // in the order of the configuration
	webhooks     []webhook.Config
	choria       *choria.Settings // nil without a gateway
	puppet       *puppetFiles     // nil without Puppet
	oidc         *login.Provider  // nil without OpenID Connect
}

func loadParts(cfg Config, opts Options) (*parts, error) {
	p := &parts{site: jwt.Site(cfg.Site)}
	var errs []error
	add := func(key string, err error) { errs = append(errs, conffile.Prefix(key, err)) }
	keys := cfg.Keyring(&opts.Keys)
	defer keys.Forget()
	errs = append(errs, cfg.judgeFiles()...)
	var err error
	p.signers, err = loadSigners(cfg, opts)
	add("tokens", err)
	p.puppet, err = cfg.loadPuppet(opts, keys)
	add("puppet", err)
	p.authority, err = loadAuthority(cfg, opts.Now, keys, p.puppet.branch())
	add("ca", err)
	if p.authority != nil {
		p.replies = cfg.newReplyKey(p.authority, opts)
		p.broker, err = showOwn("broker", cfg.ownRequest(), p.authority, opts)
		add("broker", err)
	}
	if p.authority != nil && cfg.API.Listen != "" {
		p.api, err = newAPI(cfg, p.authority, opts)
		add("api", err)
	}
	if cfg.Broker.URL != "" {
		p.brokerKeys, err = LoadBrokerKeys(&cfg.Broker.External)
		add("broker", err)
	}
	p.loadSeal(cfg, keys, add)
	add("data_dir", cfg.checkDataDir())
	p.reserved, err = newReserved(cfg, p.api, opts)
	add("reserved", err)
	p.configurator, err = loadConfigurator(cfg, opts)
	add("configuration", err)
	p.preview = previewOf(cfg, p.configurator, p.reserved)
	engine := policies.Config{Paths: []string{cfg.Policy}, Judge: cfg.judge, Log: opts.Log, Follow: p.preview.Follow}
	p.policy, err = policies.Load(engine)
	add("policy", err)
	if cfg.ShadowPolicy != "" {
		engine.Paths = []string{cfg.ShadowPolicy}
		p.shadow, err = policies.Load(engine)
		add("shadow_policy", err)
	}
	if h, ok := p.configurator.(helperConfigurator); ok {
		p.helper = h.h
	}
	if c := cfg.Waiting.Autosign; len(c.Command) > 0 {
		p.autosign, err = newHelper(cfg, c.Command, time.Duration(c.Timeout), opts)
		add("waiting.autosign", err)
	}
	p.webhooks = loadWebhooks(cfg, opts, add)
	p.choria, err = cfg.loadChoria()
	add("choria", err)
	p.oidc, err = cfg.OIDC.Load()
	add("oidc", err)
	if i := slices.IndexFunc(errs, func(err error) bool { return errors.Is(err, keyfile.ErrPassphrase) }); i >= 0 {
		return nil, errs[i] // other keys cannot be opened either
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *parts) loadSeal(cfg Config, keys *keyfile.Ring, add func(string, error)) {
	for i, path := range cfg.Seal.Keys {
		key, err := loadSealKey(path, keys)
		if add(fmt.Sprintf("seal.keys[%d]", i), err); err == nil {
			p.sealKeys = append(p.sealKeys, key)
		}
	}
	var err error
	if len(p.sealKeys) > 0 {
		p.opener, err = seal.NewOpener(p.sealKeys...)
	}
	add("seal.keys", err)
}

func loadSigners(cfg Config, opts Options) ([]jwt.Signer, error) {
	var errs []error
	var signers []jwt.Signer
	for _, c := range cfg.Tokens.Signers {
		s, err := inputfile.Parse(c.File, inputfile.Configured, jwt.ParseSigner)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.Name = c.name()
		for _, site := range c.Sites {
			s.Sites = append(s.Sites, jwt.Site(site))
		}
		for _, pattern := range c.Identities {
			s.Identities = append(s.Identities, wire.Pattern(pattern))
		}
		signers = append(signers, s)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	// This finds, for example, two signers with one key.
	if _, err := jwt.NewVerifier(jwt.VerifierConfig{Signers: signers, Now: opts.Now}); err != nil {
		return nil, err
	}
	return signers, nil
}

func loadConfigurator(cfg Config, opts Options) (provisioner.Configurator, error) {
	switch {
	case cfg.Configuration.Template != "":
		return readTemplate(cfg.Configuration.Template)
	case len(cfg.Configuration.Helper) > 0:
		h, err := newHelper(cfg, cfg.Configuration.Helper, time.Duration(cfg.Configuration.Timeout), opts)
		if err != nil {
			return nil, err
		}
		return helperConfigurator{h}, nil
	default:
		return nil, nil
	}
}

// LoadPreview reads the configuration of a provisioner. runHelper lets a preview run the helper for each node.
func LoadPreview(path string, runHelper bool) (*provisioner.Preview, error) {
	cfg, err := ReadConfig(path)
	if err != nil {
		return nil, err
	}
	opts := Options{}.complete()
	c, err := loadConfigurator(cfg, opts)
	if err != nil {
		return nil, conffile.Prefix(path+": configuration", err)
	}
	names, err := newReserved(cfg, nil, opts)
	if err != nil {
		return nil, conffile.Prefix(path, err)
	}
	preview := previewOf(cfg, c, names)
	preview.PolicyOnly = preview.PolicyOnly && !runHelper
	return preview, nil
}

// previewOf runs no helper.
func previewOf(cfg Config, c provisioner.Configurator, r *reserved.Names) *provisioner.Preview {
	_, runs := c.(helperConfigurator)
	p := &provisioner.Preview{
		Configurator: c,
		PolicyOnly:   runs,
		MaxTTL:       time.Duration(cfg.Certificates.MaxLifetime),
		Reserved:     r.Check,
	}
	if gateway, err := cfg.loadChoria(); err == nil && gateway != nil { // loadParts reports an error
		p.Choria = gateway.Preview
	}
	return p
}

func newReserved(cfg Config, shown *shownCertificate, opts Options) (*reserved.Names, error) {
	r, err := reserved.New(cfg.Reserved, opts.Resolver, opts.Log, opts.Now)
	if err != nil {
		return nil, err
	}
	r.Add("the API", slices.Concat(cfg.API.Names, cfg.API.Addresses)...)
	if shown != nil && shown.own == nil {
		r.Add("the API", shown.hosts()...)
	}
	r.Add("the broker", slices.Concat(cfg.Broker.Names, cfg.Broker.Addresses)...)
	for broker := range strings.SplitSeq(cfg.Broker.URL, ",") {
		r.Add("the broker", reserved.HostOf(broker))
	}
	r.Add("this provisioner", cfg.Name)
	if cfg.Puppet.Enabled() {
		r.Add("the Puppet gateway", slices.Concat(puppet.Reserved, cfg.Puppet.Names)...)
	}
	return r, nil
}

func newHelper(cfg Config, command []string, timeout time.Duration, opts Options) (*helper.Helper, error) {
	command = slices.Clone(command)
	if strings.Contains(command[0], "/") && !filepath.IsAbs(command[0]) {
		command[0] = filepath.Dir(cfg.path) + "/" + command[0] // Join would drop a "./"
	}
	if err := cfg.judgeCommand(command); err != nil {
		return nil, err
	}
	return helper.New(helper.Config{Command: command, Timeout: timeout, Log: opts.Log})
}
