package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"muster/provisioner/trust"
)

// durableStreams are in the order in which a backup reads them while provisioners write. What a message depends on was
// stored before it, and is read after it: a record without its claim would free a use. Revocations come last: they hold
// even if an older record says otherwise.
var durableStreams = []string{streamCertificates, streamNodes, streamClaims, streamEntries, streamRevocations}

// Export calls each for every message of a backup, up to the first error of each. Provisioners may write meanwhile. No
// identity is missed: a message is dropped only after [History] newer ones of its subject, which Export still reads.
func (s *Store) Export(ctx context.Context,
	each func(stream string, sequence uint64, subject string, data []byte) error,
) error {
	for _, name := range durableStreams {
		// A backup that lacks a message would free a name or a use.
		if err := s.scanAll(ctx, name, func(m message) error {
			return each(name, m.sequence, m.subject, m.data)
		}); err != nil {
			return fmt.Errorf("export: stream %s: %w", name, err)
		}
	}
	return nil
}

// Pending returns how many messages an export would read now.
func (s *Store) Pending(ctx context.Context) (n uint64, err error) {
	found, err := s.marks(ctx, 0)
	if err != nil {
		return 0, fmt.Errorf("read the state of the streams: %w", err)
	}
	for _, m := range found.Streams {
		n += m.Messages
	}
	return n, nil
}

// DurableStreams returns the streams of a backup, in the order of the backup.
func DurableStreams() []string { return slices.Clone(durableStreams) }

// CheckMessage validates a message of a backup.
func CheckMessage(stream string, sequence uint64, subject string, data []byte) error {
	prefix, known := durablePrefixes[stream]
	if !known {
		return fmt.Errorf("stream %.80q is not part of a backup", stream)
	}
	var err error
	m := message{subject: subject, data: data, sequence: sequence}
	switch {
	case !strings.HasPrefix(subject, prefix) || subject == prefix:
		err = fmt.Errorf("sequence %d: message on %.80q", sequence, subject)
	case stream == streamNodes:
		_, err = decodeRecord(m)
	case stream == streamCertificates:
		_, err = decodeCertificate(m)
	case stream == streamClaims:
		_, err = decodeClaims(m)
	case stream == streamRevocations:
		_, err = decodeAt(m, func(r *trust.Revocation) string { return subjectRevocation + r.LogKey() })
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	return nil
}

var durablePrefixes = map[string]string{
	streamNodes:        subjectNode,
	streamCertificates: subjectCertificate,
	streamClaims:       subjectClaims,
	streamEntries:      strings.TrimSuffix(subjectEntries, ">"),
	streamRevocations:  subjectRevocation,
}
