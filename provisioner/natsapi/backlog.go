package natsapi

import (
	"time"

	"github.com/nats-io/nats.go"
)

// A waiter is a request that waits for a worker.
type waiter struct {
	*nats.Msg
	since time.Time
}

// A backlog is what waits for a worker: confirmations by themselves, and everything else.
//
// In one queue, who has its certificate would wait behind all who have nothing yet, a second
// time as long as the first; and when a store that was away is back, with full queues
// everywhere, nobody would be through until all of those had begun. A node has to be begun
// with to confirm, so of each two that a worker takes one is of either kind, if both wait:
// neither can keep the other out, whatever somebody sends.
type backlog struct{ confirmations, others chan waiter }

func newBacklog(size int) *backlog {
	return &backlog{confirmations: make(chan waiter, size), others: make(chan waiter, size)}
}

// close ends what each returns once it is empty. Nobody may put anything in any more.
func (b *backlog) close() {
	close(b.confirmations)
	close(b.others)
}

func (b *backlog) len() int { return len(b.confirmations) + len(b.others) }

// each calls work for what waits and what comes, by turns, until it is closed and empty.
// Any number of goroutines may call it.
func (b *backlog) each(work func(waiter)) {
	var first, second <-chan waiter = b.confirmations, b.others
	for first != nil || second != nil {
		var w waiter
		select {
		case w = <-first:
			if w.Msg == nil {
				first = nil
			}
		default:
			select {
			case w = <-first:
				if w.Msg == nil {
					first = nil
				}
			case w = <-second:
				if w.Msg == nil {
					second = nil
				}
			}
		}
		if w.Msg != nil {
			work(w)
		}
		first, second = second, first
	}
}
