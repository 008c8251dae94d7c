package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"strings"
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
	opener *seal.ReplyOpener
}

type offer struct {
	reply []byte

	serial, digest, receiptSum string
}

type refusal struct {
	wire.Refusal
	unsealed bool // not sealed as required: it delays the node, but the node tries again
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

// errWrong means that a reply is not valid for the request.
var errWrong = errors.New("wrong reply")

func (n *node) newRequest(id string, message any) (request, error) {
	data, opener, err := simnode.EncodeIn(n.session(), message)
	return request{id, data, opener}, err
}

func (n *node) enrollment(facts int) (request, error) {
	m := n.Request()
	m.Facts = factsOf(n.Identity, facts)
	return n.newRequest(m.ID, m)
}

func (n *node) confirmation() (request, error) {
	a := &wire.Applied{
		ID:         wire.NewID(),
		Identity:   n.Identity,
		Serial:     n.offer.serial,
		Digest:     n.offer.digest,
		ReceiptSum: n.offer.receiptSum,
	}
	var err error
	if a.Signature, err = wire.Sign(n.Key, wire.AppliedDigest(a.Identity, a.Serial, a.Digest)); err != nil {
		return request{}, err
	}
	return n.newRequest(a.ID, a)
}

func (f *fleet) enroll(l link, n *node) error {
	r := n.prepared
	n.prepared = request{}
	if r.data == nil { // not the first attempt
		var err error
		if r, err = n.enrollment(f.cfg.FactsBytes); err != nil {
			return err
		}
	}
	reply, err := r.send(l, wire.SubjectEnroll)
	if err != nil {
		return err
	}
	o := &offer{
		reply:      reply,
		serial:     member(reply, "serial"),
		digest:     member(reply, "digest"),
		receiptSum: member(reply, "receipt_sum"),
	}
	if o.serial == "" || o.digest == "" {
		return fmt.Errorf("%w: no certificate in the reply to an enroll request", errWrong)
	}
	roots := strings.ReplaceAll(member(reply, "ca"), `\n`, "\n")
	offered := &wire.Reply{Enrolled: &wire.Enrolled{
		Serial:     o.serial,
		Digest:     o.digest,
		CA:         roots,
		ReceiptSum: o.receiptSum,
	}}
	if err := f.checkSigned(n, r, reply, offered); err != nil {
		return err
	}
	n.offer = o
	return nil
}

func (f *fleet) apply(l link, n *node) error {
	r, err := n.confirmation()
	if err != nil {
		return err
	}
	reply, err := r.send(l, wire.SubjectApplied)
	if err != nil {
		return err
	}
	if !bytes.Contains(reply, []byte(`"applied":`)) || member(reply, "serial") != n.offer.serial {
		return fmt.Errorf("%w: the reply does not answer the confirmation", errWrong)
	}
	if receipt := member(reply, "receipt"); receipt != "" && wire.Sum([]byte(receipt)) == n.offer.receiptSum {
		return nil
	}
	return f.checkSigned(n, r, reply, &wire.Reply{Applied: &wire.Accepted{Serial: n.offer.serial}})
}

// checkSigned checks the signature of an unsealed reply, as nodes do before they use it. said is the reply as far as it
// is signed. The provisioner's certificate is verified once; each signature is.
func (f *fleet) checkSigned(n *node, r request, reply []byte, said *wire.Reply) error {
	if r.opener != nil {
		return nil
	}
	_, list, _ := bytes.Cut(reply, []byte(`"provisioner":[`))
	list, _, _ = bytes.Cut(list, []byte{']'})
	key, known := f.provisioners.Load(string(list))
	if !known {
		whole, err := wire.DecodeReply(reply)
		if err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		authority := trust.Authority{Known: []*x509.Certificate{f.root}}
		signer, err := authority.Provisioner(whole.Provisioner, nil, now)
		if err != nil {
			return fmt.Errorf("%w: %w", errWrong, err)
		}
		key = signer.PublicKey
		f.provisioners.Store(string(list), key)
	}
	signature, err := base64.StdEncoding.DecodeString(member(reply, "signature"))
	if err != nil {
		return fmt.Errorf("%w: signature: %w", errWrong, err)
	}
	said.ID, said.Installation = r.id, member(reply, "installation")
	if err := wire.CheckSignature(key, wire.ReplyDigest(said, n.Identity, r.data), signature); err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	return nil
}

// send returns the opened reply. A refusal is an error.
func (r request) send(l link, subject string) ([]byte, error) {
	b, err := l.ask(subject, r.data)
	if err != nil {
		return nil, err
	}
	unsealed := false
	if r.opener != nil {
		if b, unsealed, err = r.open(b); err != nil {
			return nil, fmt.Errorf("%w: %w", errWrong, err)
		}
	}
	if unsealed || bytes.Contains(b, []byte(`"refusal":`)) {
		m, err := wire.DecodeReply(b)
		if err == nil && m.Refusal != nil {
			return nil, &refusal{*m.Refusal, unsealed}
		}
		return nil, fmt.Errorf("%w: %.80q", errWrong, b)
	}
	if id := member(b, "id"); id != r.id {
		return nil, fmt.Errorf("the reply is to request %.22q, not %q", id, r.id)
	}
	return b, nil
}

// open opens a sealed reply. It returns any other reply unchanged.
func (r request) open(b []byte) (plain []byte, unsealed bool, err error) {
	text := member(b, "ct")
	if text == "" {
		return b, true, nil
	}
	frame, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, false, err
	}
	plain, err = r.opener.Open(frame)
	return plain, false, err
}

// member returns the first member with this name in a reply; it must be a string without escapes. Decoding would take
// longer than all other work of a node; [fleet.verify] decodes later.
func member(reply []byte, name string) string {
	_, rest, _ := bytes.Cut(reply, []byte(`"`+name+`":"`))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(text)
}

// verify checks every node's offer after the clock has stopped, since real nodes check it on their own cores.
func (f *fleet) verify(ctx context.Context) error {
	return each(ctx, len(f.nodes), runtime.GOMAXPROCS(0), func(i int) error {
		n := f.nodes[i]
		if n.offer == nil {
			return nil
		}
		if err := f.checkOffer(n); err != nil {
			f.count.mu.Lock()
			defer f.count.mu.Unlock()
			f.count.failed++
			f.count.enrolled--
			if f.applied {
				f.count.provisioned--
			}
			f.count.noteCause(n, err)
		}
		return nil
	})
}

func (f *fleet) checkOffer(n *node) error {
	if f.puppet != nil {
		_, err := f.certificate(n)
		return err
	}
	if n.service != "" {
		return f.checkService(n)
	}
	if f.cfg.Choria != 0 {
		return f.checkConfigured(n)
	}
	return n.check(f.root)
}

// check returns an error unless the offer has the confirmed digest, and its certificate passes the checks of the agent.
func (n *node) check(root *x509.Certificate) error {
	reply, err := wire.DecodeReply(n.offer.reply)
	if err != nil {
		return err
	}
	e := reply.Enrolled
	if e == nil {
		return errors.New("no certificate in the reply")
	}
	if digest := wire.Digest(e.Certificate, e.Files); digest != e.Digest || digest != n.offer.digest {
		return fmt.Errorf("digest is %.16s, the provisioner says %.16s", digest, e.Digest)
	}
	_, err = trust.Check(n.Key, e.Certificate, []*x509.Certificate{root}, wire.Identity(n.Identity), now)
	return err
}

// now is a [trust.Clock].
func now(time.Time) time.Time { return time.Now() }

// brokerTLS accepts a broker for the host under the pinned root, as nodes do.
func brokerTLS(host, pin string) *tls.Config {
	c := trust.PinnedTLS(pin, host, false, now)
	verifyOnce(c, c.VerifyConnection)
	return c
}

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
