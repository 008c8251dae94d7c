package store

import (
	"errors"
	"fmt"
	"slices"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"
)

// JetStream errors of writes at the limit of the server or of our account. nats.go does not name them.
const (
	errCodeAccount   jetstream.ErrorCode = 10002
	errCodeResources jetstream.ErrorCode = 10023
	errCodeStorage   jetstream.ErrorCode = 10047
)

// messageOverhead exceeds what JetStream adds to a message of ours.
const messageOverhead = 256

// SetRoom sets how many bytes may be written before the rest is reserved for revocations. JetStream has one limit for
// all streams and refuses revocations too when it is reached. Once so many bytes are written, records, claims and
// grants get [trust.ErrStoreFull]. Call it regularly; before the first call there is no limit.
func (s *Store) SetRoom(bytes int64) { s.room.Store(bytes) }

// useRoom subtracts a message from the room, or returns [trust.ErrStoreFull].
func (c *client) useRoom(subject string, b []byte) error {
	if c.room.Add(-int64(len(subject)+len(b)+messageOverhead)) < 0 {
		return fmt.Errorf("%w: the rest is for revocations", trust.ErrStoreFull)
	}
	return nil
}

// wrapFull wraps an error of JetStream at its limit as [trust.ErrStoreFull], and returns other errors unchanged.
func wrapFull(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && slices.Contains([]jetstream.ErrorCode{errCodeAccount, errCodeResources, errCodeStorage}, api.ErrorCode) {
		return fmt.Errorf("%w: %w", trust.ErrStoreFull, err)
	}
	return err
}
