package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// changed says that somebody has changed a stream, and that it is as it has to be again.
func (s *Store) changed(ctx context.Context, stream string, less []string) {
	s.log.WarnContext(ctx, "stream was changed by somebody else, it is changed back", "stream", stream, "err", errors.New(strings.Join(less, ", ")))
}

// lessThan says by what of its configuration a stream of records keeps less than is wanted of it, or
// takes less: all else is not ours to judge, since another version may want it so.
func lessThan(have, want jetstream.StreamConfig) (less []string) {
	differs := func(is bool, what string, have, want any) {
		if is {
			less = append(less, fmt.Sprintf("%s is %v, want %v", what, have, want))
		}
	}
	bounded := func(have, want int64) bool { return have > 0 && (want <= 0 || have < want) }
	differs(bounded(have.MaxMsgs, want.MaxMsgs), "max_msgs", have.MaxMsgs, "none")
	differs(bounded(have.MaxBytes, want.MaxBytes), "max_bytes", have.MaxBytes, "none")
	differs(have.MaxAge > 0, "max_age", have.MaxAge, "none")
	differs(bounded(int64(have.MaxMsgSize), int64(want.MaxMsgSize)), "max_msg_size", have.MaxMsgSize, "none")
	differs(bounded(have.MaxMsgsPerSubject, want.MaxMsgsPerSubject), "max_msgs_per_subject", have.MaxMsgsPerSubject, want.MaxMsgsPerSubject)
	differs(have.Replicas < want.Replicas, "replicas", have.Replicas, want.Replicas)
	differs(have.Storage != want.Storage, "storage", have.Storage, want.Storage)
	differs(have.Retention != want.Retention, "retention", have.Retention, want.Retention)
	differs(have.Discard != want.Discard, "discard", have.Discard, want.Discard)
	differs(have.PersistMode != want.PersistMode, "persist_mode", have.PersistMode, want.PersistMode)
	differs(have.NoAck && !want.NoAck, "no_ack", have.NoAck, want.NoAck)
	differs(have.Sealed, "sealed", have.Sealed, false)
	differs(have.Mirror != nil || len(have.Sources) > 0, "what it mirrors", "another stream", "none")
	differs(have.SubjectTransform != nil, "subject_transform", "there", "none")
	for _, subject := range want.Subjects {
		differs(!slices.Contains(have.Subjects, subject), "subjects", strings.Join(have.Subjects, " "), strings.Join(want.Subjects, " "))
	}
	return less
}

// reports tells the streams of reports from those of records.
func reports(name string) bool {
	return slices.Contains([]string{streamEvents, streamAttempts, streamLifecycle, streamAlive, streamInputs, streamWaiting, streamComponents}, name)
}
