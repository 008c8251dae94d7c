package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/console"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/login"
	"muster/provisioner/operate"
)

// APIConfig configures the HTTPS API for operators on other machines.
type APIConfig struct {
	// Listen is the address, like ":8443". Empty: only the control socket.
	Listen string `yaml:"listen"`

	// Names and Addresses are for a certificate by the installation's authority. Its key is never on disk.
	Names     []string `yaml:"names"`
	Addresses []string `yaml:"addresses"`

	// Certificate and Key are PEM files of another authority, instead of Names and Addresses. They may change at
	// any time.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

func (c *APIConfig) validate(v *Mistakes) {
	named := len(c.Names)+len(c.Addresses) > 0
	given := c.Certificate != "" || c.Key != ""
	if c.Listen == "" {
		if named || given {
			v.Bad("api.listen", "missing, but other api keys are set")
		}
		return
	}
	v.Listen("api.listen", c.Listen)
	switch {
	case (c.Certificate == "") != (c.Key == ""):
		v.Bad("api.certificate", "set without api.key, or api.key without it: set both or none")
	case given && named:
		v.Bad("api.names", "set together with api.certificate, which has names of its own")
	case !given && !named:
		v.Bad("api.names", "missing: the host names under which operators reach the provisioner, or api.certificate "+
			"and api.key")
	}
	v.Each("api.names", c.Names, v.Name)
	v.Each("api.addresses", c.Addresses, v.Address)
}

// serverRequest returns the request for the certificate of an HTTPS listener.
func (c *Config) serverRequest(names []string, addresses []net.IP) ca.Request {
	return ca.Request{
		Role:        wire.RoleProvisioner,
		Name:        c.Name,
		TTL:         time.Duration(c.Certificates.MaxLifetime),
		DNSNames:    names,
		IPAddresses: addresses,
		ServerAuth:  true,
	}
}

// A shownCertificate is what a listener shows.
type shownCertificate struct {
	own   *ownCertificate // nil if it is from a file
	shown atomic.Pointer[tls.Certificate]

	path, key string // of the file
}

func newAPI(cfg Config, authority *ca.Authority, opts Options) (*shownCertificate, error) {
	a := &shownCertificate{path: cfg.API.Certificate, key: cfg.API.Key}
	if a.path != "" {
		return a, a.load()
	}
	return showOwn("API", cfg.serverRequest(cfg.API.Names, parseIPs(cfg.API.Addresses)), authority, opts)
}

func showOwn(what string, r ca.Request, authority *ca.Authority, opts Options) (*shownCertificate, error) {
	a := &shownCertificate{own: newOwnCertificate(what, r, p256, authority, opts)}
	shown, err := a.own.issue()
	if errors.Is(err, ca.ErrAuthority) { // Run reports it; see [Daemon.Usable]
		return a, nil
	}
	a.shown.Store(&shown)
	return a, err
}

func (a *shownCertificate) load() error {
	c, err := keyPair(a.path, a.key)
	if err == nil {
		a.shown.Store(&c)
	}
	return err
}

func keyPair(certificate, key string) (tls.Certificate, error) {
	shown, err := inputfile.ReadText(certificate, inputfile.Configured)
	if err != nil {
		return tls.Certificate{}, err
	}
	private, err := inputfile.ReadText(key, inputfile.Configured)
	if err != nil {
		return tls.Certificate{}, err
	}
	defer clear(private)
	c, err := tls.X509KeyPair(shown, private)
	if err != nil {
		err = fmt.Errorf("%s and %s: %w", certificate, key, err)
	}
	return c, err
}

// certificate reads the files for each connection. If they are unreadable or do not match, the last certificate stays.
func (a *shownCertificate) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var err error
	if a.own == nil {
		err = a.load()
	}
	if c := a.shown.Load(); c != nil {
		return c, nil
	}
	return nil, errors.Join(errNoCertificate, err)
}

func (a *shownCertificate) run(ctx context.Context) error {
	if a == nil || a.own == nil {
		return nil
	}
	return a.own.run(ctx, func(c tls.Certificate) { a.shown.Store(&c) })
}

func (a *shownCertificate) leaf() (*x509.Certificate, error) {
	c, err := a.certificate(nil)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(c.Certificate[0])
}

// hosts returns the names and addresses in the certificate, if it can be read.
func (a *shownCertificate) hosts() (hosts []string) {
	leaf, err := a.leaf()
	if err != nil {
		return nil // reported as the API's fault
	}
	for _, ip := range leaf.IPAddresses {
		hosts = append(hosts, ip.String())
	}
	return append(hosts, leaf.DNSNames...)
}

// usable returns why the listener has no valid certificate now, or nil.
func (a *shownCertificate) usable(now time.Time) error {
	leaf, err := a.leaf()
	switch {
	case err != nil:
	case now.After(leaf.NotAfter):
		err = fmt.Errorf("its certificate expired at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		err = fmt.Errorf("its certificate is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return err
}

var errNoCertificate = errors.New("there is no certificate yet")

func (d *Daemon) edge(nodes *fleet.Index, recent *events.Recent) operate.Edge {
	return operate.Edge{
		Provisioner:  d.Operator(),
		Orders:       d.Orders(),
		Login:        login.New(d.Operator(), d.parts.oidc),
		Fleet:        nodes,
		Nodes:        fleet.NewInspector(d.Store(), nodes, d.Services().Index()),
		Certificates: d.Services(),
		Events:       d.Store(),
		Recent:       recent,
		Webhooks:     d.webhooks,
		Log:          d.opts.Log,
		Now:          d.opts.Now,
	}
}

func (d *Daemon) operators(edge operate.Edge, register *componentReporter, pages http.Handler,
) (*httpapi.Server, error) {
	cfg := httpapi.Config{
		Socket:     d.cfg.socket(),
		Edge:       edge,
		Backup:     d.Backup,
		Inputs:     d.Inputs,
		Components: register,
		Metrics:    d.reports.metrics.Handler(),
		Ready:      status{d}.ready,
	}
	if s := d.live.puppet.Load(); s != nil {
		cfg.Foreman = s.Foreman()
	}
	if d.parts.api != nil {
		cfg.Console = pages
		cfg.HTTPS = &httpapi.HTTPSConfig{
			Listen:      d.cfg.API.Listen,
			Certificate: d.parts.api.certificate,
			Roots:       d.parts.authority.Roots(),
		}
	}
	s := httpapi.New(cfg)
	if err := listenError(s.Open(), "api.listen"); err != nil {
		return nil, err
	}
	d.live.apiURL.Store(s.URL())
	if s.URL() != "" {
		d.opts.Log.Info("operators are served", "url", s.URL())
	}
	return s, nil
}

// listenError adds what to do if a port is taken, or an address is not this machine's.
func listenError(err error, key string) error {
	switch { // by text, as nats-server reports it
	case err == nil || !strings.Contains(err.Error(), "listen tcp "):
		return err
	case strings.Contains(err.Error(), syscall.EADDRINUSE.Error()):
		return fmt.Errorf("%w: stop the program that listens there, or change %s", err, key)
	default:
		return fmt.Errorf("%w: change %s", err, key)
	}
}

// console is served over HTTPS only.
func (d *Daemon) console(edge operate.Edge, register *componentReporter) *console.Console {
	return console.New(console.Config{
		Edge:       edge,
		Components: register.All,
		Issuers:    d.liveByIssuer,
		Settings:   d.cfg.shown,
		Shadow:     d.reports.shadow.summary,
		Problem: func(err error) (status int, what, remedy string) {
			p := httpapi.ProblemOf(err)
			return p.Status, p.Detail, p.Remedy
		},
		Version: d.opts.Version,
	})
}

// summary is nil without a shadow policy.
func (s *shadow) summary() *console.Shadow {
	if s == nil {
		return nil
	}
	return &console.Shadow{
		Digest:   s.policy.Digest(),
		Compared: s.compared.Load(),
		Differed: s.differed.Load(),
		LeftOut:  s.leftOut.Load(),
	}
}
