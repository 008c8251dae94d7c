// Package queuegroup takes messages of a NATS queue group, except while its process has a fault of its own.
package queuegroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// What nats.go keeps of each subscription while nothing is taken from it. Its own limits are 64 MiB as well, and
// 500,000 messages, of which each takes a kilobyte however short it is, for what the broker says of its sender: one
// connection had 600 MB kept within seconds. The number is 6 s at the rate at which the provisioner answers `busy`.
const (
	MaxPending      = 1 << 16
	MaxPendingBytes = 64 << 20
)

// faultEvery is how often a process looks for a fault of its own.
const faultEvery = 200 * time.Millisecond

// A Group is a member of a queue group on some subjects.
type Group struct {
	Conn     *nats.Conn
	Name     string
	Subjects []string
	Take     nats.MsgHandler // must not block

	// Fault returns why this process must leave the messages to other members, nil if it may take them. Optional.
	Fault func() error
}

// Run takes messages until ctx is done, except while the process has a fault: what it was sent before is taken. It
// keeps the connection meanwhile: a process whose clock is behind might not get another one. It returns nil, or why a
// subscription could not be made or ended, after the last call of Take. ready, if not nil, is called once messages are
// taken, or the process has found that it must not.
func (g *Group) Run(ctx context.Context, ready func()) error {
	var subs []*nats.Subscription
	var look <-chan time.Time
	if g.Fault != nil {
		tick := time.NewTicker(faultEvery)
		defer tick.Stop()
		look = tick.C
	}
	for begun := false; ; begun = true {
		out := g.Fault != nil && g.Fault() != nil
		var err error
		switch {
		case out && subs != nil:
			err, subs = Drain(subs...), nil
		case !out && subs == nil:
			subs, err = g.Subscribe()
		}
		if err == nil && !begun { // later the broker may be away, and is told once it is back
			err = g.Conn.Flush()
		}
		if err != nil {
			return errors.Join(err, Drain(subs...))
		}
		if ready != nil && !begun {
			ready()
		}
		select {
		case <-ctx.Done():
			return Drain(subs...)
		case <-look:
		}
	}
}

// Subscribe joins the group. Beside an error it returns the subscriptions that were made.
func (g *Group) Subscribe() (subs []*nats.Subscription, err error) {
	for _, subject := range g.Subjects {
		sub, err := g.Conn.QueueSubscribe(subject, g.Name, g.Take)
		if err != nil {
			return subs, fmt.Errorf("subscribe %s: %w", subject, err)
		}
		subs = append(subs, sub)
		if err := sub.SetPendingLimits(MaxPending, MaxPendingBytes); err != nil {
			return subs, fmt.Errorf("subscribe %s: %w", subject, err)
		}
	}
	return subs, nil
}

// Drain ends subscriptions and returns when the last message that the broker had already sent has been taken.
func Drain(subs ...*nats.Subscription) error {
	var errs []error
	var closed sync.WaitGroup
	for _, sub := range subs {
		closed.Add(1)
		sub.SetClosedHandler(func(string) { closed.Done() })
		if err := sub.Drain(); err != nil {
			errs = append(errs, fmt.Errorf("drain %s: %w", sub.Subject, err))
			closed.Done()
		}
	}
	closed.Wait()
	return errors.Join(errs...)
}
