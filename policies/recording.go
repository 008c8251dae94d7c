package policies

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"muster/internal/wire"
)

// VerdictFailed stands in a [Recording] for the decision of a policy that gave
// none: the node was refused.
const VerdictFailed Verdict = "failed"

// A Recording is one decision as it is kept: what the policy saw, all of it and
// not only what that policy named, and what it made of that. Another policy can
// be asked about the same input later; see [Replay].
type Recording struct {
	// Input is what the policy saw, without what looks like a secret.
	Input *Input `json:"input"`

	Verdict Verdict  `json:"verdict"`
	Reasons []string `json:"reasons,omitempty"` // as [Decision.Why] gives them, or why there is none

	Policy string `json:"policy"` // digest of the policy that decided

	// Redacted says that something was left out of the input, so that a policy
	// which looks at that may decide otherwise than it did.
	Redacted bool `json:"redacted,omitempty"`
}

// NewRecording makes a recording of a decision, or of the error in place of one.
// It changes neither in nor d. digest is of the policy that was asked.
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

// ConfigurationDigest returns the hex SHA-256 over what a policy configures, in
// the order of its keys; "" if it configures nothing, since then a template or a
// helper does.
func ConfigurationDigest(configuration map[string]string) string {
	if configuration == nil {
		return ""
	}
	b, _ := wire.EncodeJSON(configuration) // cannot fail with strings
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
