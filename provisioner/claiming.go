package provisioner

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// MaxClaiming is how many requests may wait at a time for their claims, or for their uses of
// limited allow-list entries, together; chosen, three
// quarters of those that the edge has in hand (natsapi.Config.Workers), and a test
// there looks. The log of one token takes one entry after the other, and may be slow where
// other provisioners write to it too, or its leader is far. If all in hand could wait for it, nobody else
// would be served: machines with other tokens, renewals, confirmations.
const MaxClaiming = 192

// ErrNoRoom says that as many requests as may wait for claims and uses do. Nothing of
// the request has been written: the node is to come back.
var ErrNoRoom = errors.New("too many requests wait for their claims")

// claiming is how many requests wait for their claims and uses. The zero value is none. It is
// safe for concurrent use.
type claiming struct{ waiting atomic.Int64 }

// full returns ErrNoRoom if there is no room for another one. It is a look ahead:
// by the time of enter that may have changed.
func (c *claiming) full() error {
	if n := c.waiting.Load(); n >= MaxClaiming {
		return fmt.Errorf("%w: %d, limit %d", ErrNoRoom, n, MaxClaiming)
	}
	return nil
}

// enter takes a place, which is given back by leave, or returns ErrNoRoom.
func (c *claiming) enter() error {
	if c.waiting.Add(1) > MaxClaiming {
		c.leave()
		return fmt.Errorf("%w: limit %d", ErrNoRoom, MaxClaiming)
	}
	return nil
}

func (c *claiming) leave() { c.waiting.Add(-1) }
