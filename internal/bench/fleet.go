package bench

import (
	"context"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/server/trust"
)

// Enough to keep both cores busy.
const sharedLinks = 16

// A fleet has the nodes of one wave.
type fleet struct {
	cfg     *Config
	run     string // part of all names, unique per fleet
	applied bool   // nodes confirm

	address string
	secure  *tls.Config
	token   string
	root    *x509.Certificate
	sealKey *seal.PublicKey
	links   []sharedLink // for all nodes; empty: each has a connection of its own

	// What the kind of nodes does: create is called before the clock starts, act until it succeeds, and check after.
	create func(i int) (*node, error)
	act    func(context.Context, *node) error
	check  func(*node) error

	puppet *puppetAuthority

	// For Choria servers.
	secret string // of the token
	keys   []*rsa.PrivateKey
	issuer ed25519.PublicKey // of server JWTs; nil: unknown
	nodes  []*node

	provisioners sync.Map // public keys by the reply's certificates

	count *counts

	// The measurement.
	start         time.Time
	before, after usage // of the serving processes
	cpu           int64 // of this process
}

type node struct {
	*simnode.Node
	credentials
	link     link
	prepared request        // made before the clock starts, sent once
	offer    *wire.Enrolled // nil before the reply

	service string // DNS name of the service certificate that the node requests

	// csr is a Puppet agent's request, PEM, or a Choria server's answer to a request for one, JSON; empty: it has an
	// Ed25519 key.
	csr        string
	configured *choriaAction // the Choria server's configuration
}

// newFleet makes the nodes of a wave with one token.
func (s *serving) newFleet(ctx context.Context, cfg *Config, kind Wave) (*fleet, error) {
	token, err := s.token(cfg)
	if err != nil {
		return nil, err
	}
	at := s.url
	if cfg.Puppet.Enabled {
		at = s.puppet
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	f := &fleet{
		cfg:     cfg,
		run:     runID(),
		applied: kind == WaveApplied,
		address: u.Host,
		token:   token,
		root:    s.root,
		issuer:  s.issuer,
	}
	switch host := u.Hostname(); {
	case cfg.Puppet.Enabled:
		err = f.preparePuppet(ctx, s.login, host)
	case cfg.Choria != 0:
		err = f.prepareChoria(ctx, host)
	default:
		err = f.prepareAgents(s, host)
	}
	if err != nil {
		return nil, err
	}
	f.nodes = make([]*node, cfg.Nodes)
	return f, each(ctx, len(f.nodes), runtime.GOMAXPROCS(0), func(i int) (err error) {
		f.nodes[i], err = f.create(i)
		return err
	})
}

// prepareAgents does what newAgent needs. host is the broker's.
func (f *fleet) prepareAgents(s *serving, host string) error {
	f.create, f.act, f.check = f.newAgent, f.join, f.checkAgent
	if f.cfg.Connection.Sealed {
		f.sealKey = &s.seal
	}
	if f.cfg.Connection.TLS { // accept a broker for the host under the pinned root, as nodes do
		f.secure = trust.PinnedTLS(s.pin(), host, false, now)
		verifyOnce(f.secure, f.secure.VerifyConnection)
	}
	if !f.cfg.Connection.Shared {
		return nil
	}
	for range sharedLinks {
		l, err := f.dialShared()
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		f.links = append(f.links, l)
	}
	return nil
}

func runID() string {
	return strings.ToLower(strings.NewReplacer("-", "0", "_", "1").Replace(wire.NewID()))[:10]
}

func identityOf(run string, i int) string { return "n" + strconv.Itoa(i) + "." + run + ".bench.muster" }

func (f *fleet) newAgent(i int) (*node, error) {
	s, err := simnode.New(identityOf(f.run, i), f.token)
	if err != nil {
		return nil, err
	}
	n := &node{Node: s}
	if len(f.links) > 0 {
		l := f.links[i%len(f.links)]
		n.link, n.credentials = l, l.credentials
	} else if n.credentials, err = f.newCredentials(); err != nil {
		return nil, err
	}
	n.prepared, err = f.enrollment(n)
	return n, err
}

func (f *fleet) newCredentials() (c credentials, err error) {
	c = credentials{name: wire.NewID(), token: f.token}
	if f.sealKey != nil {
		if c.session, err = seal.NewSession(*f.sealKey, wire.Secret(f.token)); err == nil {
			c.token = c.session.Token()
		}
	}
	return c, err
}

func (f *fleet) dial(c credentials) (*conn, error) { return dial(f.address, c, f.secure) }

func (f *fleet) closeLinks() {
	for _, l := range f.links {
		l.close()
	}
}

// each calls do for every number below n from several workers, until a call fails.
func each(ctx context.Context, n, workers int, do func(i int) error) error {
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range workers {
		g.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					return err
				}
			}
			return ctx.Err()
		})
	}
	return g.Wait()
}

const usualFacts = 2 << 10

// factsOf returns facts of about size bytes, as of a machine with this name.
func factsOf(identity string, size int) json.RawMessage {
	var b strings.Builder
	b.WriteString(`{"fqdn":"` + identity + `","datacenter":"ams1","role":"web","environment":"production",` +
		`"os":{"name":"debian","release":"13.1","kernel":"6.12.48"},` +
		`"hardware":{"vendor":"Dell Inc.","model":"PowerEdge R660","serial":"7XK2Q14"},` +
		`"memory_mb":262144,"cpus":64,"virtual":false,"quarantine":false,"network":{"primary":"eno1",` +
		`"interfaces":{"eno1":{"mac":"3c:ec:ef:12:34:56","mtu":1500,"speed":25000}}},"packages":{`)
	const end = `"end":"1.0"}}`
	for i := 0; b.Len()+len(end)+40 <= size; i++ {
		fmt.Fprintf(&b, `"library-%04d":"2.%d.%d-1+deb13",`, i, i%17, i%5)
	}
	b.WriteString(end)
	return json.RawMessage(b.String())
}
