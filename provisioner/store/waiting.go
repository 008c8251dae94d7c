package store

import (
	"context"
	"encoding/json"
	"fmt"

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

// A WaiterStore keeps the keys that wait for an identity.
type WaiterStore struct{ *client }

// Waiter implements [waiting.Store].
func (s *WaiterStore) Waiter(ctx context.Context, id wire.Identity, keyHash string,
) (*waiting.Key, trust.Revision, error) {
	w, revision, err := getLast[waiting.Key](ctx, s.client, streamWaiting, keySubject(subjectWaiting, id, keyHash))
	if err != nil {
		return nil, revision, fmt.Errorf("read pending key of %q: %w", id, err)
	}
	return w, revision, nil
}

// PutWaiter implements [waiting.Store].
func (s *WaiterStore) PutWaiter(ctx context.Context, w *waiting.Key, after trust.Revision) error {
	if err := w.Check(); err != nil {
		return err
	}
	if _, err := s.put(ctx, keySubject(subjectWaiting, w.Identity, w.KeyHash), w, uint64(after)); err != nil {
		return fmt.Errorf("write pending key of %q: %w", w.Identity, err)
	}
	return nil
}

// DropWaiter implements [waiting.Store].
func (s *WaiterStore) DropWaiter(ctx context.Context, id wire.Identity, keyHash string, upTo trust.Revision) error {
	if err := s.drop(ctx, streamWaiting, keySubject(subjectWaiting, id, keyHash), upTo); err != nil {
		return fmt.Errorf("remove pending key of %q: %w", id, err)
	}
	return nil
}

// Waiters implements [waiting.Store]. It leaves out unreadable entries of other versions.
func (s *WaiterStore) Waiters(ctx context.Context, id wire.Identity, each func(*waiting.Key, trust.Revision) error,
) error {
	filter := subjectWaiting + ">"
	if id != "" {
		filter = subjectWaiting + id.SubjectToken() + ".*"
	}
	return s.scan(ctx, streamWaiting, 0, lastPerSubject(filter), func(m message) error {
		var w waiting.Key
		if err := decode(m.data, &w); err != nil {
			s.log.WarnContext(ctx, "pending key not read", "subject", m.subject, "err", err)
			return nil
		}
		return each(&w, trust.Revision(m.sequence))
	})
}

func decode(data []byte, dst checker) error {
	if err := json.Unmarshal(data, dst); err != nil {
		return err
	}
	return dst.Check()
}
