package policies

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"muster/internal/wire"
)

// VerdictFailed is the verdict of a [Recording] if the evaluation failed.
const VerdictFailed Verdict = "failed"

// A Recording is a recorded decision with its whole input, so that another policy can be evaluated on it; see [Replay].
type Recording struct {
	// Input has its secrets redacted.
	Input *Input `json:"input"`

	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons,omitempty"` // [Decision.Why], or the error

	Policy string `json:"policy"` // digest

	// Redacted: Input had secrets. A policy that reads a redacted value may decide otherwise.
	Redacted bool `json:"redacted,omitempty"`
}

// NewRecording records a decision, or err if there is none. digest is the policy's. in and d stay unchanged.
func NewRecording(in *Input, d *Decision, err error, digest string) *Recording {
	r := &Recording{Policy: digest}
	r.Input, r.Redacted = withoutSecrets(in)
	if err != nil || d == nil {
		r.Verdict, r.Reasons = VerdictFailed, []string{shapes(fmt.Sprint(err))}
		return r
	}
	r.Verdict, r.Policy = d.Verdict(), d.Digest
	for _, why := range d.Why() {
		r.Reasons = append(r.Reasons, shapes(why))
	}
	return r
}

// ParseRecording decodes a recording.
func ParseRecording(line []byte) (*Recording, error) {
	var r Recording
	err := json.Unmarshal(line, &r)
	if err == nil && r.Input == nil {
		err = errors.New("no input")
	}
	if err != nil {
		return nil, fmt.Errorf("recorded decision: %w", err)
	}
	return &r, nil
}

// ConfigurationDigest returns the hex SHA-256 over a configuration in the order of its keys, or "" for nil.
func ConfigurationDigest(configuration map[string]string) string {
	if configuration == nil {
		return ""
	}
	b, _ := wire.EncodeJSON(configuration) // cannot fail with strings
	return fmt.Sprintf("%x", sha256.Sum256(b))
}
