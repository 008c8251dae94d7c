package seal

import (
	"errors"
	"fmt"

	"muster/internal/wire"
)

// ErrPlain means that a message that had to be sealed came in plain. It may be
// anybody's. A node may let the wait of a plain refusal slow its next attempt
// (see [wire.Refusal.Wait]) and must not believe anything else in it.
var ErrPlain = errors.New("message is not sealed")

const (
	requestFrame = len(`{"v":1,"sealed":true,"key":"","enc":"","ct":""}`) + (idBytes+2)/3*4 + (encapsulatedBytes+2)/3*4
	replyFrame   = len(`{"v":1,"sealed":true,"ct":""}`)

	// MaxRequestBytes is the largest plain message, envelope and all, that fits
	// into a sealed one of [wire.MaxMessageBytes], 48,892 bytes: base64 makes
	// four bytes of three. A full token, full facts (40 KiB together) and a
	// certificate request of 5 KiB fit.
	MaxRequestBytes = ((wire.MaxMessageBytes-requestFrame)/4*3-saltBytes-tagBytes)/padTo*padTo - lengthBytes

	// MaxReplyBytes is the largest sealed reply, 683 KiB: a plain one of
	// [wire.MaxReplyBytes] in base64. A broker's max_payload must be above it;
	// NATS has 1 MiB unless told otherwise.
	MaxReplyBytes = (maxFrameBytes+2)/3*4 + replyFrame
)

// Encode returns a message in a sealed envelope: a *[wire.Applied] for that
// purpose, and any other as an enroll request. The opener is for the replies to it;
// a retry is sealed anew and has an opener of its own. The error wraps
// [wire.ErrTooLarge] if the plain message is above [MaxRequestBytes].
func (s *Session) Encode(message any) ([]byte, *ReplyOpener, error) {
	purpose := PurposeEnroll
	if _, is := message.(*wire.Applied); is {
		purpose = PurposeApplied
	}
	plain, err := wire.Encode(message)
	if err != nil {
		return nil, nil, fmt.Errorf("seal: %w", err)
	}
	if len(plain) > MaxRequestBytes {
		return nil, nil, fmt.Errorf("seal: %w: %d bytes, limit %d", wire.ErrTooLarge, len(plain), MaxRequestBytes)
	}
	m, reply, err := s.Seal(purpose, plain)
	if err != nil {
		return nil, nil, err
	}
	return wire.EncodeSealed(m.Key, m.Encapsulated, m.Ciphertext), reply, nil
}

// EncodeReply returns message, a *[wire.Reply], in a sealed envelope. The error
// wraps [wire.ErrTooLarge] if the plain message is above [wire.MaxReplyBytes].
func (r *ReplySealer) EncodeReply(message any) ([]byte, error) {
	plain, err := wire.Encode(message)
	if err != nil {
		return nil, fmt.Errorf("seal reply: %w", err)
	}
	frame, err := r.Seal(plain)
	if err != nil {
		return nil, err
	}
	return wire.EncodeSealed("", nil, frame), nil
}

// DecodeReply decodes what [ReplySealer.EncodeReply] made, of at most
// [MaxReplyBytes]. The reply came from a holder of the seal key and answers this
// request.
//
// The error wraps [ErrPlain], [ErrOpen], or an error of [wire.Open] or
// [wire.DecodeReply]. Whichever it is, the node goes on waiting: anybody can
// send what causes it.
func (r *ReplyOpener) DecodeReply(b []byte) (*wire.Reply, error) {
	e, err := wire.Open(b, MaxReplyBytes)
	if err != nil {
		return nil, fmt.Errorf("sealed reply: %w", err)
	}
	if !e.Sealed {
		return nil, fmt.Errorf("reply: %w", ErrPlain)
	}
	if e.Key != "" || e.Encapsulated != nil {
		return nil, fmt.Errorf("sealed reply: %w: members of a request", ErrOpen)
	}
	plain, err := r.Open(e.Ciphertext)
	if err != nil {
		return nil, fmt.Errorf("sealed reply: %w", err)
	}
	return wire.DecodeReply(plain)
}
