package store

import (
	"errors"
	"fmt"
	"slices"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"
)

// JetStream errors of a full disk or account, which nats.go does not name.
const (
	errCodeAccount   jetstream.ErrorCode = 10002
	errCodeResources jetstream.ErrorCode = 10023
	errCodeStorage   jetstream.ErrorCode = 10047
)

const messageOverhead = 256

// SetRoom sets how many bytes may be written before the rest is reserved for revocations, since JetStream at its limit
// refuses every write. Then records, claims and grants get [trust.ErrStoreFull]. Call it regularly.
func (s *Store) SetRoom(bytes int64) { s.room.Store(bytes) }

func (c *client) useRoom(subject string, b []byte) error {
	if c.room.Add(-int64(len(subject)+len(b)+messageOverhead)) < 0 {
		return fmt.Errorf("%w: the remaining space is reserved for revocations", trust.ErrStoreFull)
	}
	return nil
}

// wrapFull wraps an error of JetStream at its limit as [trust.ErrStoreFull].
func wrapFull(err error) error {
	if isCode(err, errCodeAccount, errCodeResources, errCodeStorage) {
		return fmt.Errorf("%w: %w", trust.ErrStoreFull, err)
	}
	return err
}

func isCode(err error, codes ...jetstream.ErrorCode) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && slices.Contains(codes, api.ErrorCode)
}
