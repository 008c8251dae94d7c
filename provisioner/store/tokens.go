package store

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/jwt"
	"muster/provisioner/trust"
)

// TokenNotes keeps what is known of unlimited tokens.
type TokenNotes struct{ *client }

// NoteToken implements [provisioner.TokenNotes]. Only a token's first note stays.
func (s *TokenNotes) NoteToken(t *trust.TokenInfo) {
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
func (s *TokenNotes) NotedTokens(ctx context.Context, each func(*trust.TokenInfo) error) error {
	return s.scan(ctx, streamEntries, 0, lastPerSubject(subjectToken+"*"), func(m message) error {
		var t trust.TokenInfo
		if err := json.Unmarshal(m.data, &t); err != nil {
			return fmt.Errorf("token on %s: %w", m.subject, err)
		}
		return each(&t)
	})
}

// NotedToken implements [provisioner.TokenNotes].
func (s *TokenNotes) NotedToken(ctx context.Context, tid jwt.TokenID) (*trust.TokenInfo, error) {
	t, _, err := getLast[trust.TokenInfo](ctx, s.client, streamEntries, subjectToken+string(tid))
	if err != nil {
		return nil, fmt.Errorf("read note of token %s: %w", tid, err)
	}
	return t, nil
}
