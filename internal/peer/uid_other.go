//go:build !linux && !darwin && !freebsd

package peer

import "errors"

func uidOf(int) (uint32, error) { return 0, errors.ErrUnsupported }
