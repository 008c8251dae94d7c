package seal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"muster/internal/wire"
)

// ErrPlain means that a message is not sealed. Do not trust its content; only a refusal's wait may delay the next
// attempt ([wire.Refusal.Wait]).
var ErrPlain = errors.New("message is not sealed")

const (
	requestFrame = len(`{"v":1,"sealed":true,"key":"","enc":"","ct":""}`) + (idBytes+2)/3*4 + (encapsulatedBytes+2)/3*4
	replyFrame   = len(`{"v":1,"sealed":true,"ct":""}`)

	// MaxRequestBytes is the largest message that, once sealed, fits [wire.MaxMessageBytes]: 196,348 bytes.
	MaxRequestBytes = ((wire.MaxMessageBytes-requestFrame)/4*3-saltBytes-tagBytes)/padTo*padTo - lengthBytes

	// MaxReplyBytes is the largest sealed reply, 683 KiB. A broker's max_payload must allow it; the default is 1
	// MiB.
	MaxReplyBytes = (maxFrameBytes+2)/3*4 + replyFrame
)

// Encode seals a [wire.Applied] or an enroll request. Call it again for each retry. The error may wrap
// [wire.ErrTooLarge].
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

// EncodeReply seals a [wire.Reply]. The error may wrap [wire.ErrTooLarge].
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

// DecodeReply opens a reply to this request from a holder of the seal key. After any error, continue to wait: the
// message may be forged. The error may wrap [ErrPlain] or [ErrOpen].
func (r *ReplyOpener) DecodeReply(b []byte) (*wire.Reply, error) {
	e, err := wire.Open(b, MaxReplyBytes)
	if err != nil {
		return nil, fmt.Errorf("sealed reply: %w", err)
	}
	if !e.Sealed {
		return nil, fmt.Errorf("reply: %w", ErrPlain)
	}
	if e.Key != "" || e.Encapsulated != nil {
		return nil, fmt.Errorf("sealed reply: %w: it has members of a request", ErrOpen)
	}
	plain, err := r.Open(e.Ciphertext)
	if err != nil {
		return nil, fmt.Errorf("sealed reply: %w", err)
	}
	return wire.DecodeReply(plain)
}

const (
	padTo       = 256 // hides small differences in size
	lengthBytes = 4
)

func padded(n int) int { return (lengthBytes + n + padTo - 1) / padTo * padTo }

// pad writes b's length and b into dst, which has [padded] zero bytes.
func pad(dst, b []byte) {
	binary.BigEndian.PutUint32(dst, uint32(len(b)))
	copy(dst[lengthBytes:], b)
}

// unpad accepts only what pad writes, so that each message has one encoding.
func unpad(b []byte) ([]byte, bool) {
	if len(b) < lengthBytes {
		return nil, false
	}
	n := uint64(binary.BigEndian.Uint32(b))
	if n > uint64(len(b)) || padded(int(n)) != len(b) {
		return nil, false
	}
	end := lengthBytes + int(n)
	for _, c := range b[end:] {
		if c != 0 {
			return nil, false
		}
	}
	return b[lengthBytes:end:end], true
}
