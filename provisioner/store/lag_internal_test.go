package store

import (
	"context"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/nats-io/nats.go/jetstream"

	"muster/jwt"
	"muster/provisioner"
)

// ahead is the leader of a stream whose end the answering server lacks.
type ahead struct{ jetstream.Stream }

func (a ahead) Info(ctx context.Context, o ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	info, err := a.Stream.Info(ctx, o...)
	if err == nil {
		info.State.LastSeq++
	}
	return info, err
}

// GetLastMsgForSubject reports one message more than the server has.
func (a ahead) GetLastMsgForSubject(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	m, err := a.Stream.GetLastMsgForSubject(ctx, subject)
	if err == nil {
		m.Sequence++
	}
	return m, err
}

// TestReadersWaitForTheLeadersEnd reads from a replica that lacks the last entry. Without it a release would miss a
// record, and a journal a claim.
func TestReadersWaitForTheLeadersEnd(t *testing.T) {
	t.Parallel()
	const web1, token = "web1.example.net", jwt.TokenID("00112233445566778899aabbccddeeff")
	record := func(attempt string) *provisioner.Record {
		return &provisioner.Record{Schema: provisioner.RecordSchema, Identity: web1, State: provisioner.StateRetired,
			Attempt: attempt, UpdatedAt: time.Now()}
	}
	claim := func(attempt string) *trust.ClaimEntry {
		return &trust.ClaimEntry{Schema: trust.ClaimSchema,
			Claims: []trust.TokenClaim{{Key: "k", Identity: web1, Attempt: attempt, At: time.Now()}}}
	}
	for name, tt := range map[string]struct {
		write func(ctx context.Context, s *Store, attempt string, after trust.Revision) (trust.Revision, error)
		read  func(ctx context.Context, s *Store, came func(attempt string)) error
	}{
		"records": {
			func(ctx context.Context, s *Store, attempt string, after trust.Revision) (trust.Revision, error) {
				return s.Put(ctx, record(attempt), after)
			},
			func(ctx context.Context, s *Store, came func(string)) error {
				return s.Records(ctx,
					func(r *provisioner.Record, _ trust.Revision) error { came(r.Attempt); return nil })
			},
		},
		"revisions": {
			func(ctx context.Context, s *Store, attempt string, after trust.Revision) (trust.Revision, error) {
				return s.Put(ctx, record(attempt), after)
			},
			func(ctx context.Context, s *Store, came func(string)) error {
				return s.Revisions(ctx, "",
					func(r *provisioner.Record, _ trust.Revision) error { came(r.Attempt); return nil })
			},
		},
		"revisions of one": {
			func(ctx context.Context, s *Store, attempt string, after trust.Revision) (trust.Revision, error) {
				return s.Put(ctx, record(attempt), after)
			},
			func(ctx context.Context, s *Store, came func(string)) error {
				return s.Revisions(ctx, web1,
					func(r *provisioner.Record, _ trust.Revision) error { came(r.Attempt); return nil })
			},
		},
		"a backup": {
			func(ctx context.Context, s *Store, attempt string, after trust.Revision) (trust.Revision, error) {
				return s.Put(ctx, record(attempt), after)
			},
			func(ctx context.Context, s *Store, came func(string)) error {
				if a, ok := s.handles[streamClaims].(ahead); ok { // not written here
					s.handles[streamClaims] = a.Stream
				}
				return s.Export(ctx, exportsRecords(came))
			},
		},
		"claims": {
			func(ctx context.Context, s *Store, attempt string, after trust.Revision) (trust.Revision, error) {
				return s.AppendClaims(ctx, token, claim(attempt), after)
			},
			func(ctx context.Context, s *Store, came func(string)) error {
				return s.AllClaims(ctx, func(_ jwt.TokenID, e *trust.ClaimEntry, _ trust.Revision) error {
					came(e.Claims[0].Attempt)
					return nil
				})
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, open := stores(t)
			writer, s := open(), open()
			first, err := tt.write(ctx, writer, "first", 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{streamNodes, streamClaims} {
				s.handles[name] = ahead{s.handles[name]}
			}
			s.timeout = time.Second
			if err := tt.read(ctx, s, func(string) {}); err == nil ||
				!strings.Contains(err.Error(), "read to sequence 1 of 2") {
				t.Errorf("from a server that stays behind: %v", err)
			}
			s.timeout = 12 * time.Second
			var all []string
			err = tt.read(ctx, s, func(attempt string) {
				if all = append(all, attempt); attempt == "first" {
					if _, err := tt.write(ctx, writer, "last", first); err != nil {
						t.Error(err)
					}
				}
			})
			if err != nil || strings.Join(all, " ") != "first last" {
				t.Errorf("it reads %q, %v; want the first and the last", all, err)
			}
		})
	}
}

func exportsRecords(each func(attempt string)) func(stream string, sequence uint64, subject string, data []byte) error {
	return func(_ string, sequence uint64, subject string, data []byte) error {
		if !strings.HasPrefix(subject, subjectNode) {
			return nil
		}
		r, err := decodeRecord(message{subject: subject, data: data, sequence: sequence})
		if err != nil {
			return err
		}
		each(r.Attempt)
		return nil
	}
}

// TestIncompleteHistoryIsAnError reads an identity's history from a replica that lacks its end.
func TestIncompleteHistoryIsAnError(t *testing.T) {
	t.Parallel()
	ctx, open := stores(t)
	s := open()
	if h, complete, err := s.History(ctx, "web1.example.net"); h != nil || !complete || err != nil {
		t.Errorf("history of an unknown node: %v, %v, %v", h, complete, err)
	}
	r := &provisioner.Record{Schema: provisioner.RecordSchema, Identity: "web1.example.net",
		State: provisioner.StateRetired, Attempt: "a", UpdatedAt: time.Now()}
	if _, err := s.Put(ctx, r, 0); err != nil {
		t.Fatal(err)
	}
	s.handles[streamNodes], s.timeout = ahead{s.handles[streamNodes]}, time.Second
	if h, complete, err := s.History(ctx, "web1.example.net"); h != nil || complete || err == nil ||
		!strings.Contains(err.Error(), "read to sequence 1 of 2") {
		t.Errorf("history from a server that is behind: %v, complete %v, %v", h, complete, err)
	}
}
