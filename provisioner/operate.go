package provisioner

import (
	"errors"
)

// ErrNoRecord means that an identity has never enrolled here.
var ErrNoRecord = errors.New("no such node")

// An OrderError says all that is wrong with an order as it was given, whatever state things
// are in: nothing was done, and given again it is refused again.
type OrderError struct{ Err error }

// Error implements error.
func (e *OrderError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *OrderError) Unwrap() error { return e.Err }
