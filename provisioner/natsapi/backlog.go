package natsapi

import "github.com/nats-io/nats.go"

// A backlog is what waits for a worker: confirmations by themselves, and everything else.
//
// In one queue, who has its certificate would wait behind all who have nothing yet, a second
// time as long as the first; and when a store that was away is back, with full queues
// everywhere, nobody would be through until all of those had begun. A node has to be begun
// with to confirm, so of each two that a worker takes one is of either kind, if both wait:
// neither can keep the other out, whatever somebody sends.
type backlog struct{ confirmations, others chan *nats.Msg }

func newBacklog(size int) *backlog {
	return &backlog{confirmations: make(chan *nats.Msg, size), others: make(chan *nats.Msg, size)}
}

// close ends what each returns once it is empty. Nobody may put anything in any more.
func (b *backlog) close() {
	close(b.confirmations)
	close(b.others)
}

func (b *backlog) len() int { return len(b.confirmations) + len(b.others) }

// each calls work for what waits and what comes, by turns, until it is closed and empty.
// Any number of goroutines may call it.
func (b *backlog) each(work func(*nats.Msg)) {
	var first, second <-chan *nats.Msg = b.confirmations, b.others
	for first != nil || second != nil {
		var m *nats.Msg
		select {
		case m = <-first:
			if m == nil {
				first = nil
			}
		default:
			select {
			case m = <-first:
				if m == nil {
					first = nil
				}
			case m = <-second:
				if m == nil {
					second = nil
				}
			}
		}
		if m != nil {
			work(m)
		}
		first, second = second, first
	}
}
