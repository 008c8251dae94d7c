package provisioner

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// ErrNoRecord means that an identity has never enrolled here.
var ErrNoRecord = errors.New("no such node")

// ErrState means that what an operator asks for makes no sense in the state that
// a node or a token is in. The text says which, and what to do.
var ErrState = errors.New("not in this state")

// An OrderError says all that is wrong with an order as it was given, whatever state things
// are in: nothing was done, and given again it is refused again.
type OrderError struct{ Err error }

// Error implements error.
func (e *OrderError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *OrderError) Unwrap() error { return e.Err }

// wrong returns what is wrong with an order as an [OrderError], nil if nothing is.
func wrong(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return &OrderError{err}
	}
	return nil
}

// CheckKeyHash reports whether a text is no SHA-256 of a public key, as records and
// logs have it.
func CheckKeyHash(text string) error {
	if !isSHA256(text) {
		return fmt.Errorf("key hash %.80q, want 64 lower-case hex digits", text)
	}
	return nil
}

// isSHA256 reports whether s is 64 lower-case hex digits.
func isSHA256(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == 32 && hex.EncodeToString(b) == s
}
