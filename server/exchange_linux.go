package server

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// exchange swaps two directories in one step: whoever looks sees either both
// before or both after. It returns errNoExchange where the kernel or the file
// system cannot.
func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP):
		return fmt.Errorf("%w: %w", errNoExchange, err)
	}
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
}
