package broker

import (
	"context"
	"time"
)

const (
	// refusalPause is how long whoever is refused over and over waits to hear of it: so long he does not
	// come again. It is less than the 4 s after which a node takes a refusal for nobody's word (package server).
	// 2,000 connections that came again with a damaged token as fast as they were refused, 2,200
	// a second, left 37 enrollments a second to others on the same two cores; with 1 s 197, and with this 322 (measured).
	refusalPause = 2 * time.Second

	// maxHeld is how many wait at a time, at most, whose broker is another process; see [newHeld].
	maxHeld = DefaultMaxConnections / 4
)

// held bounds how many wait to hear that they are refused. It is safe for concurrent use.
// Make one with [newHeld].
type held chan struct{}

// newHeld returns one for so many at a time; all others hear at once. Each has a connection, and one that has
// hung up meanwhile is not noticed: so they may have a part of all connections, and no more (a quarter, chosen).
func newHeld(most int) held { return make(held, max(1, most)) }

// wait waits for [refusalPause], or until ctx is done, unless too many do.
func (h held) wait(ctx context.Context) {
	select {
	case h <- struct{}{}:
	default:
		return
	}
	defer func() { <-h }()
	ctx, cancel := context.WithTimeout(ctx, refusalPause)
	defer cancel()
	<-ctx.Done()
}
