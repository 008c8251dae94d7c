package store

import (
	"context"
	"encoding/json"

	"muster/provisioner/waiting"

	"muster/provisioner/trust"

	"muster/internal/wire"
)

const (
	streamWaiting  = "MUSTER_WAITING"
	subjectWaiting = "muster.waiting." // + identity + key hash
)

// A pending key has about 1 KiB, and package waiting bounds their number.
const maxWaitingBytes = 128 << 20

func keySubject(prefix string, id wire.Identity, keyHash string) string {
	return prefix + id.SubjectToken() + "." + keyHash
}

// Waiter implements [waiting.Store].
func (s *Store) Waiter(ctx context.Context, id wire.Identity, keyHash string,
) (*waiting.Key, trust.Revision, error) {
	return getLast[waiting.Key](ctx, s.client, streamWaiting, keySubject(subjectWaiting, id, keyHash))
}

// PutWaiter implements [waiting.Store].
func (s *Store) PutWaiter(ctx context.Context, w *waiting.Key, after trust.Revision) error {
	if err := w.Check(); err != nil {
		return err
	}
	_, err := s.put(ctx, keySubject(subjectWaiting, w.Identity, w.KeyHash), w, after)
	return err
}

// DropWaiter implements [waiting.Store].
func (s *Store) DropWaiter(ctx context.Context, id wire.Identity, keyHash string, upTo trust.Revision) error {
	return s.drop(ctx, streamWaiting, keySubject(subjectWaiting, id, keyHash), upTo)
}

// Waiters implements [waiting.Store]. It leaves out unreadable entries of other versions.
func (s *Store) Waiters(ctx context.Context, id wire.Identity, each func(*waiting.Key, trust.Revision) error,
) error {
	filter := subjectWaiting + ">"
	if id != "" {
		filter = subjectWaiting + id.SubjectToken() + ".*"
	}
	return scanReadable(ctx, s.client, streamWaiting, filter, each)
}

// scanReadable calls each for the newest message of each subject, but not for unreadable ones.
func scanReadable[T any, P interface {
	*T
	checker
}](ctx context.Context, c *client, stream, filter string, each func(P, trust.Revision) error) error {
	return c.scan(ctx, stream, 0, lastPerSubject(filter), func(m message) error {
		v := P(new(T))
		if err := decode(m.data, v); err != nil {
			c.log.WarnContext(ctx, "message not read", "subject", m.subject, "err", err)
			return nil
		}
		return each(v, trust.Revision(m.sequence))
	})
}

func decode(data []byte, dst checker) error {
	if err := json.Unmarshal(data, dst); err != nil {
		return err
	}
	return dst.Check()
}
