package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Limits of a secret, in bytes (Standard Webhooks, "signature scheme").
const (
	minSecretBytes = 24
	maxSecretBytes = 64
)

const secretPrefix = "whsec_"

var errSecret = errors.New("want whsec_ and 24 to 64 random bytes in base64, one secret per line: " +
	"(printf whsec_; openssl rand -base64 32)")

// Secrets are the secrets of one endpoint. All of them sign each message, so that a secret can be replaced. Make them
// with [ParseSecrets].
type Secrets [][]byte

// maxSecrets bounds the secrets of one endpoint. A replacement needs two.
const maxSecrets = 4

// ParseSecrets parses 1 to 4 secrets, one per line. Errors name lines, never contents.
func ParseSecrets(text []byte) (Secrets, error) {
	var all Secrets
	var bad []string
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		b64, ok := strings.CutPrefix(line, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(b64)
		if !ok || err != nil || len(key) < minSecretBytes || len(key) > maxSecretBytes {
			bad = append(bad, strconv.Itoa(n))
			continue
		}
		all = append(all, key)
	}
	switch {
	case len(bad) > 0:
		return nil, fmt.Errorf("line %s: %w", strings.Join(bad, ", "), errSecret)
	case len(all) == 0:
		return nil, fmt.Errorf("empty: %w", errSecret)
	case len(all) > maxSecrets:
		return nil, fmt.Errorf("%d secrets, limit %d", len(all), maxSecrets)
	}
	return all, nil
}

func (s Secrets) String() string { return fmt.Sprintf("(%d secrets)", len(s)) }

// GoString implements [fmt.GoStringer].
func (s Secrets) GoString() string { return s.String() }

// Sign returns the webhook-signature of a message: one signature by each secret.
func (s Secrets) Sign(id string, at time.Time, body []byte) string {
	signatures := make([]string, len(s))
	for i, key := range s {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return strings.Join(signatures, " ")
}
