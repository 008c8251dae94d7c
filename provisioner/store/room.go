package store

import (
	"errors"
	"fmt"
	"slices"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"
)

// Errors of JetStream at its limit, which nats.go has no names for: of a write, at the limit
// of the server or of our account.
const (
	errCodeAccount   jetstream.ErrorCode = 10002
	errCodeResources jetstream.ErrorCode = 10023
	errCodeStorage   jetstream.ErrorCode = 10047
)

// messageOverhead is more than what JetStream adds to a message of ours.
const messageOverhead = 256

// SetRoom says how many more bytes may be written before what is left is held
// back for revocations: JetStream has one limit for all streams, at which it
// refuses those as well, and a bound on their stream sets nothing aside for
// them. Whoever watches the limit says so again and again. From then on records,
// claims and grants are refused with [trust.ErrStoreFull] once so many
// bytes have been written; revocations are not, nor what follows from them.
// Until it is called there is no such bound.
func (s *Store) SetRoom(bytes int64) { s.room.Store(bytes) }

// take takes a message's room, or returns [trust.ErrStoreFull].
func (c *client) useRoom(subject string, b []byte) error {
	if c.room.Add(-int64(len(subject)+len(b)+messageOverhead)) < 0 {
		return fmt.Errorf("%w: the rest is for revocations", trust.ErrStoreFull)
	}
	return nil
}

// full makes an error of JetStream at its limit a [trust.ErrStoreFull], and leaves
// all others as they are.
func wrapFull(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && slices.Contains([]jetstream.ErrorCode{errCodeAccount, errCodeResources, errCodeStorage}, api.ErrorCode) {
		return fmt.Errorf("%w: %w", trust.ErrStoreFull, err)
	}
	return err
}
