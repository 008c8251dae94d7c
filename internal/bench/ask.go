package bench

import (
	"errors"
	"fmt"

	"muster/internal/seal"
	"muster/internal/wire"
)

// enroll asks once.
func (w *walker) enroll(link link, n *node) (*wire.Enrolled, error) {
	id, decode := "", decodeReply
	data := w.scratch[:0]
	switch {
	case n.sealed != nil: // sealed beforehand, good for once
		id, data, decode = n.sealed.id, n.sealed.data, sealedDecoder(n.sealed.opener)
		n.sealed = nil
	case w.sealed:
		s, err := w.seal(n)
		if err != nil {
			return nil, err
		}
		id, data, decode = s.id, s.data, sealedDecoder(s.opener)
	default:
		id = wire.NewID()
		data = w.template.request(data, n, id)
		w.scratch = data
	}
	r, err := answer(link, wire.SubjectEnroll, id, data, decode)
	if err != nil {
		return nil, err
	}
	if r.Enrolled == nil {
		return nil, fmt.Errorf("%w: no certificate in the reply to an enroll request", errWrong)
	}
	return r.Enrolled, nil
}

// apply confirms once.
func (w *walker) apply(link link, n *node, e *wire.Enrolled) error {
	a, err := n.confirmation(e)
	if err != nil {
		return fmt.Errorf("%w: %w", errWrong, err)
	}
	var data []byte
	decode := decodeReply
	if w.sealed {
		var opener *seal.ReplyOpener
		if data, opener, err = w.credentials(n).session.EncodeApplied(a); err == nil {
			decode = sealedDecoder(opener)
		}
	} else {
		data, err = wire.Encode(a)
	}
	if err != nil {
		return err
	}
	r, err := answer(link, wire.SubjectApplied, a.ID, data, decode)
	if err != nil {
		return err
	}
	if r.Applied == nil || r.Applied.Serial != e.Serial {
		return fmt.Errorf("%w: a confirmation was answered with something else", errWrong)
	}
	return nil
}

// answer sends a request and returns the reply to it; a refusal is an error.
func answer(link link, subject, id string, data []byte, decode func([]byte) (*wire.Reply, error)) (*wire.Reply, error) {
	b, err := link.ask(subject, data)
	if err != nil {
		return nil, err
	}
	r, err := decode(b)
	if errors.Is(err, seal.ErrPlain) {
		if r, perr := wire.DecodeReply(b); perr == nil && r.Refusal != nil {
			return nil, &refusal{*r.Refusal, true} // it may slow us
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errWrong, err)
	}
	if r.ID != id {
		return nil, fmt.Errorf("%w: it answers request %.22q, not %q", errCrossed, r.ID, id)
	}
	if r.Refusal != nil {
		return nil, &refusal{*r.Refusal, false}
	}
	return r, nil
}
