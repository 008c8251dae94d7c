package bench

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// serviceNodes is how many nodes ask for service certificates, each over its own connection to the fleet.
const serviceNodes = 1000

// provision provisions muster's agents.
func (s *serving) provision(ctx context.Context, cfg *Config, nodes int) (*fleet, error) {
	alone, result := *cfg, newResult(cfg)
	alone.Nodes, alone.Rate, alone.Connection, alone.Token.Uses = nodes, 0, Connection{Shared: true}, 0
	alone.Choria, alone.Puppet = 0, Puppet{}
	f, err := s.wave(ctx, &alone, WaveApplied, result)
	if err == nil && f.count.provisioned < nodes {
		err = fmt.Errorf("provision nodes: %d of %d, %v", f.count.provisioned, nodes, result.Why)
	}
	return f, err
}

// members provisions muster's agents, and connects each to the fleet.
func (s *serving) members(ctx context.Context, cfg *Config, nodes int) (*fleet, error) {
	f, err := s.provision(ctx, cfg, nodes)
	if err != nil {
		return nil, err
	}
	f.links = make([]sharedLink, nodes)
	err = each(ctx, nodes, 2*runtime.GOMAXPROCS(0), func(i int) error {
		n := f.nodes[i]
		nc, err := n.DialFleet(s.url, n.offer, reconnects)
		if err == nil {
			_, err = nc.Subscribe(wire.CommandSubject(wire.Identity(n.Identity)), func(*nats.Msg) {})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", n.Identity, err)
		}
		f.links[i] = sharedLink{Conn: nc}
		n.link, n.credentials = f.links[i], credentials{}
		return nil
	})
	if err != nil {
		f.closeLinks()
	}
	return f, err
}

// services measures requests of provisioned nodes for cfg.Nodes service certificates with new keys.
func (s *serving) services(ctx context.Context, cfg *Config, result *Result) error {
	owners, err := s.members(ctx, cfg, min(cfg.Nodes, serviceNodes))
	if err != nil {
		return err
	}
	defer owners.closeLinks()
	nodes := len(owners.nodes)
	f := &fleet{
		cfg:   cfg,
		root:  s.root,
		links: owners.links,
		nodes: make([]*node, cfg.Nodes),
		count: &counts{failures: &result.failures},
	}
	f.act, f.check = f.requestService, f.checkService
	if err := each(ctx, cfg.Nodes, runtime.GOMAXPROCS(0), func(i int) (err error) {
		f.nodes[i], err = newService(owners.nodes[i%nodes], "s"+strconv.Itoa(i/nodes))
		return err
	}); err != nil {
		return err
	}
	if err := errors.Join(s.measure(ctx, f), f.verify(ctx)); err != nil {
		return err
	}
	result.add(WaveEnroll, f)
	result.ServiceNodes = nodes
	return nil
}

// newService returns a service certificate that a node is to request. It has its own key.
func newService(owner *node, name string) (*node, error) {
	s, err := simnode.New(name+"."+owner.Identity, "")
	if err != nil {
		return nil, err
	}
	n := &node{Node: s, credentials: owner.credentials, link: owner.link, service: s.Identity}
	n.Identity = owner.Identity
	r := &wire.CertificateRequest{
		ID:       wire.NewID(),
		Identity: owner.Identity,
		Name:     name,
		Verb:     wire.CertificateIssue,
		CSR:      s.CSR,
		Source:   "file",
	}
	n.prepared, err = n.newRequest(r.ID, r)
	return n, err
}

func (f *fleet) requestService(_ context.Context, n *node) error {
	reply, err := f.ask(n, n.prepared, wire.SubjectCertificate)
	if err == nil && reply.Certificate == nil {
		err = fmt.Errorf("%w: no certificate in the reply", errWrong)
	}
	if err == nil {
		n.offer = &wire.Enrolled{Certificate: reply.Certificate.Certificate}
	}
	return err
}

// checkService returns an error unless a service can use what the node got.
func (f *fleet) checkService(n *node) error {
	_, err := n.verify(x509.VerifyOptions{
		DNSName:   n.service,
		Roots:     poolOf(f.root),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	return err
}
