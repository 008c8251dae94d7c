package bench

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"

	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/server/trust"
)

// serviceNodes is how many nodes ask for service certificates, each over its own connection to the fleet.
const serviceNodes = 1000

// A fleetLink is a node's connection to the fleet.
type fleetLink struct {
	mu sync.Mutex
	*conn
}

func (l *fleetLink) ask(subject string, payload []byte) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn.ask(subject, payload)
}

// services connects provisioned nodes, and measures their requests for cfg.Nodes service certificates with new keys.
func (s *serving) services(ctx context.Context, cfg *Config, result *Result) error {
	ctx, cancel := s.whileServed(ctx)
	defer cancel()
	owners, err := s.provision(ctx, cfg, min(cfg.Nodes, serviceNodes))
	if err != nil {
		return err
	}
	nodes := len(owners.nodes)
	links := make([]link, nodes)
	defer func() {
		for _, l := range links {
			hangUp(l)
		}
	}()
	if err := each(ctx, nodes, 2*runtime.GOMAXPROCS(0), func(i int) (err error) {
		links[i], err = owners.dialFleet(owners.nodes[i])
		return err
	}); err != nil {
		return fmt.Errorf("connect to the fleet: %w", err)
	}
	w := &wave{fleet: &fleet{
		cfg:   cfg,
		root:  s.root,
		nodes: make([]*node, cfg.Nodes),
		count: counts{refusals: map[wire.Code]int{}},
	}}
	w.act = w.requestService
	if err := each(ctx, cfg.Nodes, runtime.GOMAXPROCS(0), func(i int) (err error) {
		owner := i % nodes
		w.nodes[i], err = newService(owners.nodes[owner], links[owner], "s"+strconv.Itoa(i/nodes))
		return err
	}); err != nil {
		return err
	}
	if err := errors.Join(s.measure(ctx, w), w.verify(ctx)); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	result.add(WaveEnroll, w)
	result.ServiceNodes = nodes
	return nil
}

// dialFleet connects a node over mutual TLS.
func (f *fleet) dialFleet(n *node) (link, error) {
	reply, err := wire.DecodeReply(n.offer.reply)
	if err != nil {
		return nil, err
	}
	roots := []*x509.Certificate{f.root}
	own, err := trust.Check(n.Key, reply.Enrolled.Certificate, roots, wire.Identity(n.Identity), now)
	if err != nil {
		return nil, err
	}
	c, err := dial(f.address, &credentials{name: wire.NewID()}, own.TLS("localhost", now))
	if err != nil {
		return nil, err
	}
	return &fleetLink{conn: c}, nil
}

// newService returns a service certificate that a node is to request. It has its own key.
func newService(owner *node, l link, name string) (*node, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	n := &node{Node: &simnode.Node{Identity: owner.Identity, Key: key}, fleet: l, service: name}
	if n.CSR, err = simnode.CSR(key, n.serviceName()); err != nil {
		return nil, err
	}
	r := &wire.CertificateRequest{
		ID:       wire.NewID(),
		Identity: owner.Identity,
		Name:     name,
		Verb:     wire.CertificateIssue,
		CSR:      n.CSR,
		Source:   "file",
	}
	n.prepared.id = r.ID
	n.prepared.data, err = wire.Encode(r)
	return n, err
}

func (n *node) serviceName() string { return n.service + "." + n.Identity }

func (f *fleet) requestService(_ context.Context, n *node) error {
	b, err := n.prepared.send(n.fleet, wire.SubjectCertificate)
	if err != nil {
		return err
	}
	reply, err := wire.DecodeReply(b)
	if err != nil || reply.Certificate == nil {
		return fmt.Errorf("%w: no certificate in the reply: %w", errWrong, err)
	}
	n.offer = &offer{reply: b}
	return f.checkSigned(n, n.prepared, b, &wire.Reply{Certificate: reply.Certificate})
}

// checkService returns an error unless a service can use what the node got.
func (f *fleet) checkService(n *node) error {
	reply, err := wire.DecodeReply(n.offer.reply)
	if err != nil {
		return err
	}
	text, roots := reply.Certificate.Certificate, []*x509.Certificate{f.root}
	return n.verify(text, roots, n.serviceName(), x509.ExtKeyUsageServerAuth)
}
