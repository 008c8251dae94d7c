package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"

	"muster/jwt"
)

// A ClaimLog keeps the claims of uses of limited tokens.
type ClaimLog struct{ *client }

// Claims implements [trust.ClaimLog]. It asks for one entry after the
// other: the tail is mostly one or two long, and what answers is the leader of
// the stream.
func (s *ClaimLog) Claims(ctx context.Context, tid jwt.TokenID, after trust.Revision, each func(*trust.ClaimEntry, trust.Revision) error) error {
	for next, n := uint64(after)+1, 0; ; next, n = next+1, n+1 {
		if n == longTail {
			var err error
			if next, err = s.manyClaims(ctx, tid, next, each); err != nil {
				return fmt.Errorf("read claims of token %s: %w", tid, err)
			}
		}
		m, err := s.nextClaims(ctx, tid, next)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read claims of token %s: %w", tid, err)
		}
		next = m.Sequence
		e, err := decodeClaims(m.Data)
		if err != nil {
			return fmt.Errorf("read claims of token %s: sequence %d: %w", tid, next, err)
		}
		if err := each(e, trust.Revision(next)); err != nil {
			return err
		}
	}
}

// longTail is after how many entries the rest is not asked for one by one; chosen.
const longTail = 16

// manyClaims is Claims from a sequence on, for a log that is long: a restart, or ten
// minutes in which nobody claims, has all of it read again, and one question for each
// entry takes as long as the way to the leader, thousands of times. It returns from where
// to go on: who answers here may be behind the leader.
func (s *ClaimLog) manyClaims(ctx context.Context, tid jwt.TokenID, next uint64, each func(*trust.ClaimEntry, trust.Revision) error) (uint64, error) {
	from := jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjectClaims + string(tid)}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next,
	}
	err := s.scan(ctx, streamClaims, 0, from, func(m message) error {
		e, err := decodeClaims(m.data)
		if err != nil {
			return fmt.Errorf("sequence %d: %w", m.sequence, err)
		}
		next = m.sequence + 1
		return each(e, trust.Revision(m.sequence))
	})
	return next, err
}

// nextClaims returns the first entry of the token at the sequence or after it,
// or [jetstream.ErrMsgNotFound].
func (s *ClaimLog) nextClaims(ctx context.Context, tid jwt.TokenID, sequence uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return ask(ctx, s.client, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return s.handles[streamClaims].GetMsg(ctx, sequence, jetstream.WithGetMsgSubject(subjectClaims+string(tid)))
	})
}

// decodeClaims decodes one entry and checks it.
func decodeClaims(data []byte) (*trust.ClaimEntry, error) {
	var e trust.ClaimEntry
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, err
	}
	if err := e.Check(); err != nil {
		return nil, err
	}
	return &e, nil
}

// AppendClaims implements [trust.ClaimLog]. It waits no longer for the
// acknowledgement than for any other answer, so that there is time to look for
// the entry when it does not come.
func (s *ClaimLog) AppendClaims(ctx context.Context, tid jwt.TokenID, e *trust.ClaimEntry, after trust.Revision) (trust.Revision, error) {
	if err := e.Check(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	revision, err := s.put(ctx, subjectClaims+string(tid), e, uint64(after))
	if err != nil {
		return 0, fmt.Errorf("write claims of token %s: %w", tid, err)
	}
	return trust.Revision(revision), nil
}

// LastClaims returns the revision of the newest entry of all logs, 0 if there is none.
func (s *ClaimLog) LastClaims(ctx context.Context) (trust.Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	info, err := s.info(ctx, streamClaims)
	if err != nil {
		return 0, fmt.Errorf("read claims: %w", err)
	}
	return trust.Revision(info.State.LastSeq), nil
}

// AllClaims implements [trust.ClaimLog].
func (s *ClaimLog) AllClaims(ctx context.Context, after trust.Revision, each func(jwt.TokenID, *trust.ClaimEntry, trust.Revision) error) error {
	end, err := s.LastClaims(ctx)
	if err != nil || end <= after {
		return err
	}
	from := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subjectClaims + "*"}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(after) + 1}
	return s.scan(ctx, streamClaims, uint64(end), from, func(m message) error {
		e, err := decodeClaims(m.data)
		if err != nil {
			return fmt.Errorf("sequence %d: %w", m.sequence, err)
		}
		return each(jwt.TokenID(strings.TrimPrefix(m.subject, subjectClaims)), e, trust.Revision(m.sequence))
	})
}

// readClaims reads all claims of a store on one server, and compares their number with what the stream says it has: a use
// whose claim cannot be read would be there again.
func (s *Store) readClaims(ctx context.Context) error {
	if s.cluster() {
		return nil // another server may have it
	}
	closed, err := s.newFollower(streamClaims).Open(ctx)
	if err != nil {
		return err
	}
	closed()
	return nil
}
