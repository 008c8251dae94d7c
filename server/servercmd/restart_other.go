//go:build !unix

package servercmd

import "errors"

// again fails, so that whoever looks after the process starts another.
func again() error { return errors.New("a command asks for a restart") }
