package provisioner

import (
	"errors"
)

// ErrNoRecord means that an identity has never enrolled here.
var ErrNoRecord = errors.New("no such node has enrolled")

// An OrderError means that an operator's order is invalid; nothing was done.
type OrderError struct{ Err error }

// Error implements error.
func (e *OrderError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *OrderError) Unwrap() error { return e.Err }
