package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/provisioner"
)

// The stream of revocations, and entries of the stream of entries.
const (
	streamRevocations = "MUSTER_REVOCATIONS"

	subjectRevocation      = "muster.revocation."
	subjectRevocationToken = subjectRevocation + "token."
	subjectRevocationNode  = subjectRevocation + "node."
	subjectCRL             = "muster.entry.crl."
)

// revocationsStream is the configuration of the stream of revocations. Nothing
// of it is ever deleted, for age, size or by hand: a revocation that is
// forgotten lets somebody in.
func revocationsStream(replicas int, direct bool) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: streamRevocations, Subjects: []string{subjectRevocation + ">"}, DenyDelete: true, DenyPurge: true, Replicas: replicas, AllowDirect: direct,
		Description: "revoked tokens, revoked and retired nodes, in the order of their revocation",
	}
}

// NextRevocation implements [provisioner.RevocationStore].
func (s *Store) NextRevocation(ctx context.Context, after provisioner.Sequence) (*provisioner.Revocation, provisioner.Sequence, error) {
	var r provisioner.Revocation
	m, err := s.next(ctx, s.revocations, subjectRevocation+">", uint64(after), &r)
	if err == nil && m != nil {
		if err = r.Check(); err == nil && m.Subject != revocationSubject(&r) {
			err = fmt.Errorf("revocation of %s", m.Subject)
		}
		if err != nil {
			err = fmt.Errorf("sequence %d: %w", m.Sequence, err)
		}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read revocations: %w", err)
	}
	if m == nil {
		return nil, 0, nil
	}
	return &r, provisioner.Sequence(m.Sequence), nil
}

// Revocations implements [provisioner.RevocationStore].
func (s *Store) Revocations(ctx context.Context, after provisioner.Sequence, each func(*provisioner.Revocation, provisioner.Sequence) error) error {
	from := jetstream.OrderedConsumerConfig{FilterSubjects: []string{subjectRevocation + ">"}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: uint64(after) + 1}
	return s.scanWith(ctx, streamRevocations, from, func(m message) error {
		var r provisioner.Revocation
		err := json.Unmarshal(m.data, &r)
		if err == nil {
			err = r.Check()
		}
		if err == nil && m.subject != revocationSubject(&r) {
			err = fmt.Errorf("revocation of %s", m.subject)
		}
		if err != nil {
			return fmt.Errorf("read revocations: sequence %d: %w", m.sequence, err)
		}
		return each(&r, provisioner.Sequence(m.sequence))
	})
}

// AppendRevocation implements [provisioner.RevocationStore].
func (s *Store) AppendRevocation(ctx context.Context, r *provisioner.Revocation) (provisioner.Sequence, error) {
	// The broker drops what it had within two minutes under the same id. After
	// that readers do.
	sequence, err := s.append(ctx, revocationSubject(r), r, r.ID)
	if err != nil {
		return 0, fmt.Errorf("write revocation %s: %w", r.ID, err)
	}
	return provisioner.Sequence(sequence), nil
}

// SupplementRevocation implements [provisioner.RevocationStore].
func (s *Store) SupplementRevocation(ctx context.Context, r *provisioner.Revocation, after provisioner.Sequence) (provisioner.Sequence, error) {
	sequence, err := s.appendAfter(ctx, revocationSubject(r), r, r.ID, provisioner.Revision(after))
	if err != nil {
		return 0, fmt.Errorf("write revocation %s: %w", r.ID, err)
	}
	return provisioner.Sequence(sequence), nil
}

// revocationSubject is where an entry goes.
func revocationSubject(r *provisioner.Revocation) string {
	if r.Kind == provisioner.RevokedToken {
		return subjectRevocationToken + string(r.Token)
	}
	return subjectRevocationNode + r.Node.SubjectToken()
}

// CRL implements [provisioner.CRLStore].
func (s *Store) CRL(ctx context.Context, issuer string, after provisioner.Revision) (*provisioner.CRL, provisioner.Revision, error) {
	// To see that there is nothing new takes no transfer of what is known.
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if after > 0 {
		if m, err := s.nextRaw(ctx, s.entries, subjectCRL+issuer, uint64(after)); err != nil || m == nil {
			return nil, 0, crlError(issuer, err)
		}
	}
	var c provisioner.CRL
	sequence, err := s.last(ctx, s.entries, subjectCRL+issuer, &c)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err == nil {
		if err = c.Check(); err == nil && c.Issuer != issuer {
			err = fmt.Errorf("CRL of issuer %q", c.Issuer)
		}
		if err != nil {
			err = fmt.Errorf("sequence %d: %w", sequence, err)
		}
	}
	if err != nil {
		return nil, 0, crlError(issuer, err)
	}
	return &c, provisioner.Revision(sequence), nil
}

func crlError(issuer string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("read CRL of %s: %w", issuer, err)
}

// PutCRL implements [provisioner.CRLStore].
func (s *Store) PutCRL(ctx context.Context, c *provisioner.CRL, after provisioner.Revision) (provisioner.Revision, error) {
	revision, err := s.putAnyway(ctx, subjectCRL+c.Issuer, c, uint64(after))
	if err != nil {
		return 0, fmt.Errorf("write CRL %d of %s: %w", c.Number, c.Issuer, err)
	}
	return provisioner.Revision(revision), nil
}

// Certificates implements [provisioner.TrustStore].
func (s *Store) Certificates(ctx context.Context, id wire.Identity) ([]*provisioner.Issued, error) {
	seen := make(map[string]bool)
	var list []*provisioner.Issued
	err := s.Revisions(ctx, id, func(r *provisioner.Record, _ provisioner.Revision) error {
		for _, i := range []*provisioner.Issued{r.Current, r.Next} {
			if i != nil && !seen[i.Serial] {
				seen[i.Serial] = true
				list = append(list, i)
			}
		}
		return nil
	})
	return list, err
}

// next decodes the first message after a sequence that has the subject, which
// may hold wildcards, into dst. There is none: nil.
func (s *Store) next(ctx context.Context, stream jetstream.Stream, subject string, after uint64, dst any) (*jetstream.RawStreamMsg, error) {
	m, err := s.nextRaw(ctx, stream, subject, after)
	if err != nil || m == nil {
		return nil, err
	}
	if err := json.Unmarshal(m.Data, dst); err != nil {
		return nil, fmt.Errorf("sequence %d: %w", m.Sequence, err)
	}
	return m, nil
}

// nextRaw is next without the decoding.
func (s *Store) nextRaw(ctx context.Context, stream jetstream.Stream, subject string, after uint64) (*jetstream.RawStreamMsg, error) {
	m, err := ask(ctx, s, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return stream.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(subject))
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	return m, err
}

// append writes one message under an id that makes a repetition harmless, and
// returns its sequence once it is on disk.
func (s *Store) append(ctx context.Context, subject string, v any, id string) (uint64, error) {
	return s.appendAfter(ctx, subject, v, id, provisioner.AnyRevision)
}

// appendAfter is append if the subject's last sequence is still after, and returns
// [provisioner.ErrConflict] if it is not.
func (s *Store) appendAfter(ctx context.Context, subject string, v any, id string, after provisioner.Revision) (uint64, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	options := []jetstream.PublishOpt{jetstream.WithMsgID(id)}
	if after != provisioner.AnyRevision {
		options = append(options, jetstream.WithExpectLastSequencePerSubject(uint64(after)))
	}
	ack, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: b}, options...)
	if conflict(err) {
		return 0, fmt.Errorf("%w (%w)", provisioner.ErrConflict, err)
	}
	if err != nil {
		return 0, full(err)
	}
	return ack.Sequence, nil
}
