package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/login"
)

// APIConfig is where operators on other machines reach the provisioner.
type APIConfig struct {
	// Listen is the address, like ":8443". Empty: there is the control socket
	// only.
	Listen string `yaml:"listen"`

	// Names and Addresses are those under which operators reach it: a certificate
	// of our own authority, which never touches the disk, is for these. Required
	// without Certificate.
	Names     []string `yaml:"names"`
	Addresses []string `yaml:"addresses"`

	// Certificate and Key are those of another authority, PEM, read again when the
	// certificate changes. Optional; both or neither, in place of Names and
	// Addresses.
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
}

func (c *APIConfig) validate(v *Mistakes) {
	named := len(c.Names)+len(c.Addresses) > 0
	given := c.Certificate != "" || c.Key != ""
	if c.Listen == "" {
		if named || given {
			v.Bad("api.listen", "missing: without it, the rest of api means nothing")
		}
		return
	}
	v.Listen("api.listen", c.Listen)
	switch {
	case (c.Certificate == "") != (c.Key == ""):
		v.Bad("api.certificate", "set with api.key or not at all")
	case given && named:
		v.Bad("api.names", "set together with api.certificate, which has names of its own")
	case !given && !named:
		v.Bad("api.names", "missing: the host names under which operators reach the provisioner, or api.certificate and api.key")
	}
	for i, n := range c.Names {
		v.Name(fmt.Sprintf("api.names[%d]", i), n)
	}
	for i, a := range c.Addresses {
		v.Address(fmt.Sprintf("api.addresses[%d]", i), a)
	}
}

// apiRequest asks for the certificate of the HTTPS listener.
func (c *Config) apiRequest() ca.Request {
	r := ca.Request{Role: wire.RoleProvisioner, Name: c.Name, TTL: time.Duration(c.Certificates.MaxLifetime), DNSNames: c.API.Names, ServerAuth: true}
	for _, a := range c.API.Addresses {
		r.IPAddresses = append(r.IPAddresses, net.ParseIP(a))
	}
	return r
}

// api is the HTTPS listener's certificate: our own, or a file's.
type api struct {
	own   *ownCertificate // nil if it is a file's
	shown atomic.Pointer[tls.Certificate]

	path, key string // of the file
}

// newAPI returns the certificate of the listener, nil without one.
func newAPI(cfg Config, authority *ca.Authority, opts Options) (*api, error) {
	a := &api{path: cfg.API.Certificate, key: cfg.API.Key}
	if a.path != "" {
		return a, a.load()
	}
	a.own = &ownCertificate{
		what:      "API",
		request:   cfg.apiRequest(),
		authority: authority,
		now:       opts.Now,
		log:       opts.Log,
	}
	shown, err := a.own.issue()
	if errors.Is(err, ca.ErrAuthority) { // it is for Run to say, as with the broker's
		return a, nil
	}
	a.shown.Store(&shown)
	return a, err
}

// load reads the certificate's file.
func (a *api) load() error {
	c, err := keyPair(a.path, a.key)
	if err == nil {
		a.shown.Store(&c)
	}
	return err
}

// keyPair reads a certificate and its key. The error names the files.
func keyPair(certificate, key string) (tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(certificate, key)
	if named := (*fs.PathError)(nil); err != nil && !errors.As(err, &named) {
		return c, fmt.Errorf("%s and %s: %w", certificate, key, err)
	}
	return c, err
}

// certificate returns what to show. A file is read for each connection, so that it can be renewed. One that cannot be read, or is of another
// key half-way through its renewal, leaves what was shown before.
func (a *api) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var err error
	if a.own == nil {
		err = a.load()
	}
	if c := a.shown.Load(); c != nil {
		return c, nil
	}
	return nil, errors.Join(errNoCertificate, err)
}

// run keeps our own certificate.
func (a *api) run(ctx context.Context) error {
	if a == nil || a.own == nil {
		return nil
	}
	return a.own.run(ctx, func(c tls.Certificate) { a.shown.Store(&c) })
}

// usable returns why the listener cannot show a certificate that is good now, or
// nil.
func (a *api) usable(now time.Time) error {
	c, err := a.certificate(nil) // as whoever connects now would see it
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	switch {
	case err != nil:
	case now.After(leaf.NotAfter):
		err = fmt.Errorf("its certificate ended at %s", leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		err = fmt.Errorf("its certificate begins at %s", leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return err
}

// errNoCertificate means that none could be issued so far.
var errNoCertificate = errors.New("there is no certificate yet")

// operators makes the operators' edge.
func (d *Daemon) operators(nodes *fleet.Index, register *register, pages http.Handler) (*httpapi.Server, error) {
	cfg := httpapi.Config{
		Socket: d.cfg.socket(), Provisioner: d.Operator(), Orders: d.Orders(), Login: login.New(d.Operator()), Backup: d.Backup, Inputs: d.Inputs, Fleet: nodes, Nodes: fleet.NewInspector(d.Store(), nodes), Components: register, Events: d.Store(), Webhooks: d.webhooks,
		Metrics: d.reports.metrics.Handler(),
		Ready:   status{d}.ready, Log: d.opts.Log, Now: d.opts.Now,
	}
	if d.parts.api != nil {
		cfg.Console = pages
		cfg.HTTPS = &httpapi.HTTPSConfig{Listen: d.cfg.API.Listen, Certificate: d.parts.api.certificate, Roots: d.parts.authority.Roots()}
	}
	s, err := httpapi.New(cfg)
	if err == nil {
		err = listenError(s.Open())
	}
	if err != nil {
		return nil, err
	}
	d.live.apiURL.Store(s.URL())
	if s.URL() != "" {
		d.opts.Log.Info("operators are served", "url", s.URL())
	}
	return s, nil
}

// listenError adds what to do if operators cannot be listened to at api.listen. Of nil it
// returns nil.
func listenError(err error) error {
	var op *net.OpError
	switch {
	case !errors.As(err, &op) || op.Op != "listen" || op.Net != "tcp": // the control socket's
		return err
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: stop what listens there, or change api.listen", err)
	default: // an address that is not the machine's, or a port that is not ours to take
		return fmt.Errorf("%w: change api.listen", err)
	}
}
