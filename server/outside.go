package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// lookTimeout bounds a look at a file that the token or server.conf say where to find. Chosen: who
// sends an order waits for 10 s, and one that asks for facts looks at them first.
const lookTimeout = 5 * time.Second

// errSilent means that a file is on a file system that does not answer.
var errSilent = errors.New("its file system does not answer")

// outside looks at a file that the token or server.conf say where to find. That may be on a
// network, and of a file system whose server is gone the kernel lets nobody go, not even who asks
// whether there is such a file: no signal would end the agent, and no order reach it. So
// after [lookTimeout] the error wraps errSilent, and ctx's if that ends first. The look itself goes on
// in a goroutine, the only one that can outlive [Server.Run]; until it is over there is no other one at
// the file for the same purpose, and whoever asks waits for that. So those that hang are no more than the files.
func outside[T any](ctx context.Context, s *Server, purpose, file string, look func(file string) (T, error)) (T, error) {
	over := time.NewTimer(cmp.Or(s.cfg.lookFor, lookTimeout))
	defer over.Stop()
	found := s.looks.DoChan(purpose+" "+file, func() (any, error) { return look(file) })
	var none T
	select {
	case r := <-found:
		return r.Val.(T), r.Err
	case <-ctx.Done():
		return none, fmt.Errorf("%s: %w", file, ctx.Err())
	case <-over.C:
		return none, &cause{what: fmt.Errorf("%s: %w", file, errSilent), remedy: "see to the server that has it, or mount it anew; the node tries again by itself"}
	}
}
