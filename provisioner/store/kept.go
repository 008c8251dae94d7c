package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/provisioner/trust"
)

// KeptStreams returns the names of the streams that a backup has, in its order.
func KeptStreams() []string { return slices.Clone(kept) }

// CheckKept reports why a message of a backup cannot be one of a store: it is of
// no stream that is kept, on another's subject, or of content that no
// provisioner of this version could read.
func CheckKept(stream string, sequence uint64, subject string, data []byte) error {
	var err error
	switch stream {
	case streamNodes:
		_, err = decodeRecord(message{subject: subject, data: data, sequence: sequence})
	case streamClaims:
		if err = startsWith(subject, subjectClaims); err == nil {
			_, err = decodeClaims(message{data: data, sequence: sequence})
		}
	case streamEntries:
		if err = startsWith(subject, strings.TrimSuffix(subjectEntries, ">")); err == nil && !json.Valid(data) {
			err = errors.New("no JSON")
		}
	case streamRevocations:
		var r trust.Revocation
		if err = json.Unmarshal(data, &r); err == nil {
			if err = r.Check(); err == nil && subject != subjectRevocation+r.LogKey() {
				err = fmt.Errorf("revocation on %s", subject)
			}
		}
	default:
		return fmt.Errorf("stream %.80q: none that is kept", stream)
	}
	if err != nil {
		return fmt.Errorf("stream %s: sequence %d: %w", stream, sequence, err)
	}
	return nil
}

func startsWith(subject, prefix string) error {
	if !strings.HasPrefix(subject, prefix) || len(subject) == len(prefix) {
		return fmt.Errorf("message on %.80q", subject)
	}
	return nil
}
