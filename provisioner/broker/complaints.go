package broker

import (
	"errors"
	"log/slog"

	"github.com/nats-io/nats.go"
)

// complaints returns what is done with the errors that nats.go meets on a
// connection of ours and has nobody to return to. By itself it prints them, and
// strangers cause one kind, as often as they like: a message with headers that are
// none. Whoever takes that message answers for it.
func complaints(log *slog.Logger) nats.Option { return nats.ErrorHandler(complain(log)) }

// complain returns the function of complaints.
func complain(log *slog.Logger) nats.ErrHandler {
	return func(nc *nats.Conn, sub *nats.Subscription, err error) {
		if errors.Is(err, nats.ErrBadHeaderMsg) {
			return
		}
		subject := ""
		if sub != nil {
			subject = sub.Subject
		}
		log.Warn("connection to the broker", "name", nc.Opts.Name, "subject", subject, "err", err)
	}
}
