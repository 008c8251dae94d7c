// Package queuegroup takes messages of a NATS queue group, except while this process has a fault.
package queuegroup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Limits of messages that wait in nats.go. With its default of 500,000, one connection could take 600 MB. These are 6 s
// of `busy` replies.
const (
	MaxPending      = 1 << 16
	MaxPendingBytes = 64 << 20
)

const faultInterval = 200 * time.Millisecond

// A Group is a member of a queue group on some subjects.
type Group struct {
	Conn     *nats.Conn
	Name     string
	Subjects []string
	Take     nats.MsgHandler // must not block

	// Fault returns why this process must not take messages, or nil. Optional.
	Fault func() error
}

// Run takes messages until ctx is done, except while there is a fault. Messages already sent are still taken then. The
// connection stays, since a process with a wrong clock might not get another one. Run returns after the last call of
// Take; an error is from subscribing or draining. ready, if not nil, is called once messages are taken, or a fault
// prevents it.
func (g *Group) Run(ctx context.Context, ready func()) error {
	var subs []*nats.Subscription
	var look <-chan time.Time
	if g.Fault != nil {
		tick := time.NewTicker(faultInterval)
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
		if err == nil && !begun { // later the broker may be away; nats.go subscribes again
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

// Subscribe joins the group. With an error it also returns the subscriptions made before.
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

// Drain ends subscriptions and returns once all messages already sent have been taken.
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
