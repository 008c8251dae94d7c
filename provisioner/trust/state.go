package trust

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrState means that an order does not fit the state of a node or token.
var ErrState = errors.New("not in this state")

// CheckKeyHash returns an error unless text is a SHA-256 in hex.
func CheckKeyHash(text string) error {
	if !IsSHA256(text) {
		return fmt.Errorf("key hash %.80q, want 64 lower-case hex digits", text)
	}
	return nil
}

// IsSHA256 reports whether s is 64 lower-case hex digits.
func IsSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && hex.EncodeToString(b) == s
}

// ErrRecord means that a record is damaged or of another version.
var ErrRecord = errors.New("record cannot be read")
