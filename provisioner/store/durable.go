package store

import (
	"fmt"
	"slices"
	"strings"

	"muster/provisioner/trust"
)

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
		err = fmt.Errorf("message on %.80q", subject)
	case stream == streamNodes:
		_, err = decodeRecord(m)
	case stream == streamClaims:
		_, err = decodeClaims(m)
	case stream == streamRevocations:
		var r trust.Revocation
		if err = decode(data, &r); err == nil && subject != subjectRevocation+r.LogKey() {
			err = fmt.Errorf("revocation on %s", subject)
		}
	}
	if err != nil {
		return fmt.Errorf("stream %s: sequence %d: %w", stream, sequence, err)
	}
	return nil
}

var durablePrefixes = map[string]string{
	streamNodes:       subjectNode,
	streamClaims:      subjectClaims,
	streamEntries:     strings.TrimSuffix(subjectEntries, ">"),
	streamRevocations: subjectRevocation,
}
