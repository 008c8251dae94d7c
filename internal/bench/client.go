package bench

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"

	"muster/internal/seal"
	"muster/internal/simnode"
	"muster/internal/wire"
)

// A request is a message that is ready to be sent.
type request struct {
	id     string
	data   []byte
	opener *seal.ReplyOpener // nil if it is not sealed
}

// An offer is the reply that has a node's certificate.
type offer struct {
	reply          []byte // plain
	serial, digest string
}

// A refusal is a provisioner's, as an error.
type refusal struct {
	wire.Refusal
	unsealed bool // although it had to be sealed: it may delay the node but not turn it away
}

func (r *refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Message) }

var (
	// errWrong means that a reply is not what a node must get. It is a failure.
	errWrong = errors.New("wrong reply")

	// errCrossed means that a reply is to another node's request. The agent asks again. The broker tells the requests
	// in hand apart by six letters of 62 that it draws: of 100,000 nodes two get the same once in a thousand times.
	errCrossed = errors.New("a reply to another request")
)

// newRequest encodes a message, sealed if the connection has a session.
func (n *node) newRequest(id string, message any) (request, error) {
	data, opener, err := simnode.EncodeIn(n.session(), message)
	return request{id, data, opener}, err
}

// enrollment returns a request for the node's certificate, with so many bytes of facts.
func (n *node) enrollment(facts int) (request, error) {
	m := n.Request()
	m.Facts = factsOf(n.Identity, facts)
	return n.newRequest(m.ID, m)
}

// confirmation returns the node's confirmation of its offer.
func (n *node) confirmation() (request, error) {
	a := &wire.Applied{ID: wire.NewID(), Identity: n.Identity, Serial: n.offer.serial, Digest: n.offer.digest}
	var err error
	if a.Signature, err = wire.Sign(n.Key, wire.AppliedDigest(a.Identity, a.Serial, a.Digest)); err != nil {
		return request{}, err
	}
	return n.newRequest(a.ID, a)
}

// enroll asks once for the node's certificate.
func (f *fleet) enroll(l link, n *node) error {
	r := n.prepared
	n.prepared = request{}
	if r.data == nil { // this is not the first attempt
		var err error
		if r, err = n.enrollment(f.cfg.FactsBytes); err != nil {
			return err
		}
	}
	reply, err := r.send(l, wire.SubjectEnroll)
	if err != nil {
		return err
	}
	o := &offer{reply: reply, serial: member(reply, "serial"), digest: member(reply, "digest")}
	if o.serial == "" || o.digest == "" {
		return fmt.Errorf("%w: no certificate in the reply to an enroll request", errWrong)
	}
	n.offer = o
	return nil
}

// apply confirms once.
func (n *node) apply(l link) error {
	r, err := n.confirmation()
	if err != nil {
		return err
	}
	reply, err := r.send(l, wire.SubjectApplied)
	if err != nil {
		return err
	}
	if !bytes.Contains(reply, []byte(`"applied":`)) || member(reply, "serial") != n.offer.serial {
		return fmt.Errorf("%w: a confirmation was answered with something else", errWrong)
	}
	return nil
}

// send sends the request and returns the reply, opened. A refusal is an error.
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
		return nil, fmt.Errorf("%w: it answers request %.22q, not %q", errCrossed, id, r.id)
	}
	return b, nil
}

// open opens a sealed reply, or returns one that is not sealed as it is.
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

// member returns the first member of this name in a reply, a string without escapes. While the clock runs this
// stands for decoding the reply, which takes longer than all else that a node does; [fleet.verify] decodes it.
func member(reply []byte, name string) string {
	_, rest, _ := bytes.Cut(reply, []byte(`"`+name+`":"`))
	text, _, _ := bytes.Cut(rest, []byte{'"'})
	return string(text)
}
