//go:build !linux

package cli

import (
	"errors"
	"os"
)

// openUnnamed opens a file without a name, where the system can.
func openUnnamed(string) *os.File { return nil }

func linkUnnamed(*os.File, string) error { return errors.ErrUnsupported }
