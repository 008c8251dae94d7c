package bench

import (
	"cmp"
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

	"golang.org/x/sync/errgroup"

	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
)

// Enough to keep both cores busy.
const sharedLinks = 16

type fleet struct {
	cfg     *Config
	run     string // part of all names, unique per fleet
	applied bool   // nodes confirm

	address string
	secure  *tls.Config
	token   string
	root    *x509.Certificate
	sealKey *seal.PublicKey
	links   []*sharedLink // empty: a connection per node

	act    func(context.Context, *node) error // of Choria servers and Puppet agents; nil: as muster's agent
	puppet *puppetAuthority

	// For Choria servers.
	secret string // of the token
	keys   []*rsa.PrivateKey
	issuer ed25519.PublicKey // of server JWTs; nil: unknown
	nodes  []*node

	provisioners sync.Map // public keys by the reply's certificates, as text

	count counts
}

type node struct {
	*simnode.Node
	own      *credentials // nil: uses link
	link     *sharedLink
	prepared request // made before the clock starts, sent once
	offer    *offer  // nil before the reply

	service string // name of the service certificate that the node requests over its connection to the fleet
	fleet   link

	// csr is a Puppet agent's request, PEM, or a Choria server's answer to a request for one, JSON; empty: it has an
	// Ed25519 key.
	csr string
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
		count:   counts{refusals: map[wire.Code]int{}},
	}
	if cfg.Connection.Sealed {
		f.sealKey = &s.seal
	}
	if cfg.Puppet.Enabled {
		if err := f.preparePuppet(ctx, s.login, u.Hostname()); err != nil {
			return nil, err
		}
	} else if cfg.Choria != 0 {
		if err := f.prepareChoria(ctx, u.Hostname()); err != nil {
			return nil, err
		}
	} else if cfg.Connection.TLS {
		f.secure = brokerTLS(u.Hostname(), s.pin())
	}
	if cfg.Connection.Shared && f.act == nil {
		for range sharedLinks {
			c, err := f.newCredentials()
			if err != nil {
				return nil, err
			}
			f.links = append(f.links, &sharedLink{credentials: c, url: s.url, secure: f.secure})
		}
	}
	f.nodes = make([]*node, cfg.Nodes)
	return f, each(ctx, len(f.nodes), runtime.GOMAXPROCS(0), func(i int) (err error) {
		f.nodes[i], err = f.newNode(i)
		return err
	})
}

func runID() string {
	return strings.ToLower(strings.NewReplacer("-", "0", "_", "1").Replace(wire.NewID()))[:10]
}

func identityOf(run string, i int) string { return "n" + strconv.Itoa(i) + "." + run + ".bench.muster" }

func (f *fleet) newNode(i int) (*node, error) {
	if f.puppet != nil {
		return f.newPuppetNode(i)
	}
	if f.cfg.Choria != 0 {
		return f.newChoriaNode(i)
	}
	s, err := simnode.New(identityOf(f.run, i), f.token)
	if err != nil {
		return nil, err
	}
	n := &node{Node: s}
	if len(f.links) > 0 {
		n.link = f.links[i%len(f.links)]
	} else if n.own, err = f.newCredentials(); err != nil {
		return nil, err
	}
	n.prepared, err = n.enrollment(cmp.Or(f.cfg.FactsBytes, usualFacts))
	return n, err
}

func (f *fleet) newCredentials() (*credentials, error) {
	c := &credentials{name: wire.NewID(), token: f.token}
	if f.sealKey == nil {
		return c, nil
	}
	var err error
	if c.session, err = seal.NewSession(*f.sealKey, wire.Secret(f.token)); err != nil {
		return nil, err
	}
	c.token = c.session.Token()
	return c, nil
}

func (f *fleet) dial(c *credentials) (*conn, error) { return dial(f.address, c, f.secure) }

func (n *node) session() *seal.Session {
	if n.own != nil {
		return n.own.session
	}
	return n.link.session
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
