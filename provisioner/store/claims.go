package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/jwt"
	"muster/provisioner/trust"
)

// Claims implements [trust.ClaimLog]. A replica that lags is harmless: an append after its end is a conflict. If fewer
// entries than the leader counts can be read from the first on, the error is [ErrDamaged], wrapped.
func (s *Store) Claims(ctx context.Context, tid jwt.TokenID, after trust.Revision,
	each func(*trust.ClaimEntry, trust.Revision) error,
) error {
	if doubt := s.guard.doubt.Load(); doubt != nil { // the token may look unused
		return fmt.Errorf("read claims of token %s: %w", tid, *doubt)
	}
	if after > 0 {
		return s.claims(ctx, tid, after, each)
	}
	return s.countedClaims(ctx, tid, each)
}

func (s *Store) countedClaims(ctx context.Context, tid jwt.TokenID,
	each func(*trust.ClaimEntry, trust.Revision) error,
) error {
	counted, came := uint64(0), uint64(0)
	info, err := s.info(ctx, streamClaims, jetstream.WithSubjectFilter(subjectClaims+string(tid)))
	if err == nil {
		counted = info.State.Subjects[subjectClaims+string(tid)]
		err = s.claims(ctx, tid, 0, func(e *trust.ClaimEntry, at trust.Revision) error { came++; return each(e, at) })
	}
	if err == nil && came < counted {
		s.losses.add("claims of token "+string(tid), func(ctx context.Context) error {
			return s.countedClaims(ctx, tid, func(*trust.ClaimEntry, trust.Revision) error { return nil })
		})
		err = fmt.Errorf("%w: %d of the %d claims of token %s can be read", ErrDamaged, came, counted, tid)
	}
	return err
}

func (s *Store) claims(ctx context.Context, tid jwt.TokenID, after trust.Revision,
	each func(*trust.ClaimEntry, trust.Revision) error,
) error {
	for more := true; more; {
		bounded, cancel := context.WithTimeout(ctx, s.timeout)
		var err error
		more, err = retryIfClustered(bounded, s.client, func(ctx context.Context) (bool, error) {
			return s.fetch(ctx, streamClaims, subjectClaims+string(tid), uint64(after)+1, func(m message) error {
				e, err := decodeClaims(m)
				if err == nil {
					after = trust.Revision(m.sequence)
					err = each(e, after)
				}
				return err
			})
		})
		cancel()
		if err != nil {
			return fmt.Errorf("read claims of token %s: %w", tid, err)
		}
	}
	return nil
}

func decodeClaims(m message) (*trust.ClaimEntry, error) {
	return decodeAt(m, func(*trust.ClaimEntry) string { return m.subject }) // the entry does not name its token
}

// AppendClaims implements [trust.ClaimLog].
func (s *Store) AppendClaims(ctx context.Context, tid jwt.TokenID, e *trust.ClaimEntry, after trust.Revision,
) (trust.Revision, error) {
	if err := e.Check(); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	last := s.guard.claims.Load()
	revision, err := s.put(ctx, subjectClaims+string(tid), e, after)
	if err == nil {
		err = s.guard.after(streamClaims, uint64(revision), last)
	}
	return revision, err
}

// AllClaims implements [trust.ClaimLog].
func (s *Store) AllClaims(ctx context.Context, each func(jwt.TokenID, *trust.ClaimEntry, trust.Revision) error,
) error {
	return s.scanAll(ctx, streamClaims, func(m message) error {
		e, err := decodeClaims(m)
		if err != nil {
			return err
		}
		return each(jwt.TokenID(strings.TrimPrefix(m.subject, subjectClaims)), e, trust.Revision(m.sequence))
	})
}

// NoteToken implements [provisioner.TokenNotes]. Only a token's first note stays.
func (s *Store) NoteToken(t *trust.TokenInfo) {
	b, err := json.Marshal(t)
	if err == nil {
		err = s.useRoom(subjectToken, b)
	}
	if err == nil {
		m := &nats.Msg{Subject: subjectToken + string(t.ID), Data: b, Header: nats.Header{}}
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, "0")
		err = s.nc.PublishMsg(m)
	}
	if err != nil {
		s.log.Warn("note of a token lost", "token_id", t.ID, "err", err)
	}
}

// NotedTokens implements [provisioner.TokenNotes].
func (s *Store) NotedTokens(ctx context.Context, each func(*trust.TokenInfo) error) error {
	return s.scan(ctx, streamEntries, 0, lastPerSubject(subjectToken+"*"), func(m message) error {
		var t trust.TokenInfo
		if err := json.Unmarshal(m.data, &t); err != nil {
			return fmt.Errorf("token on %s: %w", m.subject, err)
		}
		return each(&t)
	})
}

// NotedToken implements [provisioner.TokenNotes].
func (s *Store) NotedToken(ctx context.Context, tid jwt.TokenID) (*trust.TokenInfo, error) {
	t, _, err := getLast[trust.TokenInfo](ctx, s.client, streamEntries, subjectToken+string(tid))
	return t, err
}
