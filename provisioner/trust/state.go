package trust

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrState means that what an operator asks for makes no sense in the state that
// a node or a token is in. The text says which, and what to do.
var ErrState = errors.New("not in this state")

// CheckKeyHash reports whether a text is no SHA-256 of a public key, as records and
// logs have it.
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

// ErrRecord means that what the store holds cannot be a record of ours, or
// not of this version: the store answers, and the one identity needs a person.
var ErrRecord = errors.New("record cannot be read")
