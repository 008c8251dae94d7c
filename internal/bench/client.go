package bench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
	"muster/server/trust"
)

type request struct {
	id     string
	data   []byte
	decode func(reply []byte) (*wire.Reply, error)
}

type refusal struct {
	wire.Refusal
	unsealed bool // not sealed as required: it delays the node, but the node tries again
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// errWrong means that a reply is not valid for the request.
var errWrong = errors.New("wrong reply")

func (n *node) newRequest(id string, message any) (request, error) {
	data, decode, err := simnode.Encode(n.session, message)
	return request{id, data, decode}, err
}

func (f *fleet) enrollment(n *node) (request, error) {
	m := n.Request()
	m.Facts = factsOf(n.Identity, cmp.Or(f.cfg.FactsBytes, usualFacts))
	return n.newRequest(m.ID, m)
}

// join connects, enrolls and confirms as an agent, as far as not done yet.
func (f *fleet) join(_ context.Context, n *node) error {
	if n.link == nil {
		c, err := f.dial(n.credentials)
		if err != nil {
			return err
		}
		n.link = c
	}
	if n.offer == nil {
		if err := f.enroll(n); err != nil {
			return err
		}
	}
	if !f.applied {
		return nil
	}
	return f.apply(n)
}

func (f *fleet) enroll(n *node) (err error) {
	r := n.prepared
	n.prepared = request{}
	if r.data == nil { // not the first attempt
		if r, err = f.enrollment(n); err != nil {
			return err
		}
	}
	reply, err := f.ask(n, r, wire.SubjectEnroll)
	if err == nil && reply.Enrolled == nil {
		err = fmt.Errorf("%w: no certificate in the reply to an enroll request", errWrong)
	}
	if err == nil {
		n.offer = reply.Enrolled
	}
	return err
}

func (f *fleet) apply(n *node) error {
	a, err := n.Confirm(n.offer)
	if err != nil {
		return err
	}
	a.ReceiptSum = n.offer.ReceiptSum
	r, err := n.newRequest(a.ID, a)
	if err != nil {
		return err
	}
	reply, err := f.ask(n, r, wire.SubjectApplied)
	if err == nil && (reply.Applied == nil || reply.Applied.Serial != a.Serial) {
		err = fmt.Errorf("%w: the reply does not answer the confirmation", errWrong)
	}
	return err
}

// ask returns the reply of a provisioner. A refusal is an error.
func (f *fleet) ask(n *node, r request, subject string) (*wire.Reply, error) {
	b, err := n.link.ask(subject, r.data)
	if err != nil {
		return nil, err
	}
	reply, err := r.decode(b)
	unsealed := errors.Is(err, seal.ErrPlain)
	if unsealed {
		reply, err = wire.DecodeReply(b)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errWrong, err)
	case reply.Refusal != nil:
		return nil, &refusal{*reply.Refusal, unsealed}
	case unsealed:
		return nil, fmt.Errorf("%w: not sealed: %.80q", errWrong, b)
	case reply.ID != r.id:
		return nil, fmt.Errorf("the reply is to request %.22q, not %q", reply.ID, r.id)
	case n.session == nil:
		err = f.checkSigned(n, r, reply)
	}
	return reply, err
}

// checkSigned checks the signature of an unsealed reply, as nodes do before they use it. The provisioner's certificate
// is verified once; each signature is.
func (f *fleet) checkSigned(n *node, r request, reply *wire.Reply) error {
	if a := reply.Applied; a != nil && a.Receipt != "" && wire.Sum([]byte(a.Receipt)) == n.offer.ReceiptSum {
		return nil
	}
	chain := string(bytes.Join(reply.Provisioner, nil))
	key, known := f.provisioners.Load(chain)
	if !known {
		authority := trust.Authority{Known: []*x509.Certificate{f.root}}
		signer, err := authority.Provisioner(reply.Provisioner, nil, now)
		if err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		key = signer.PublicKey
		f.provisioners.Store(chain, key)
	}
	if err := wire.CheckSignature(key, wire.ReplyDigest(reply, n.Identity, r.data), reply.Signature); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	return nil
}

// verify checks every node's offer after the clock has stopped, since real nodes check it on their own cores.
func (f *fleet) verify(ctx context.Context) error {
	return each(ctx, len(f.nodes), runtime.GOMAXPROCS(0), func(i int) error {
		n := f.nodes[i]
		if n.offer == nil {
			return nil
		}
		if err := f.check(n); err != nil {
			f.count.mu.Lock()
			defer f.count.mu.Unlock()
			f.count.Failed++
			f.count.enrolled--
			if f.applied {
				f.count.provisioned--
			}
			f.count.noteCause(n, err)
		}
		return nil
	})
}

// checkAgent returns an error unless the offer has its digest, and its certificate passes the checks of the agent.
func (f *fleet) checkAgent(n *node) error {
	e := n.offer
	if digest := wire.Digest(e.Certificate, e.Files); digest != e.Digest {
		return fmt.Errorf("digest is %.16s, the provisioner says %.16s", digest, e.Digest)
	}
	_, err := trust.Check(n.Key, e.Certificate, []*x509.Certificate{f.root}, wire.Identity(n.Identity), now)
	return err
}

// verify checks the chain that a node got for its key, and returns it.
func (n *node) verify(o x509.VerifyOptions) ([]*x509.Certificate, error) {
	chain, err := trust.ParseCertificates(n.offer.Certificate)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	if !wire.SamePublicKey(chain[0].PublicKey, n.Key.Public()) {
		return nil, errors.New("certificate is for another key")
	}
	return chain, verifyChain(chain, o)
}

func verifyChain(chain []*x509.Certificate, o x509.VerifyOptions) error {
	if o.Intermediates == nil {
		o.Intermediates = x509.NewCertPool()
	}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	_, err := chain[0].Verify(o)
	return err
}

func poolOf(certificates ...*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certificates {
		pool.AddCert(c)
	}
	return pool
}

// now is a [trust.Clock].
func now(time.Time) time.Time { return time.Now() }

// verifyOnce has an unchanged certificate verified only once; each handshake still proves the key.
func verifyOnce(c *tls.Config, verify func(tls.ConnectionState) error) {
	var known atomic.Pointer[[]byte]
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		leaf := cs.PeerCertificates[0].Raw
		if k := known.Load(); k != nil && bytes.Equal(*k, leaf) {
			return nil
		}
		err := verify(cs)
		if err == nil {
			known.Store(&leaf)
		}
		return err
	}
}
