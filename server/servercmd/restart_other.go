//go:build !unix

package servercmd

import "errors"

// again fails, so that whoever looks after the process starts another.
func again() error {
	return errors.New("another agent is to be started: this system cannot replace the one that ends")
}
