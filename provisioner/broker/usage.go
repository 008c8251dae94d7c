package broker

import (
	"fmt"

	"github.com/nats-io/nats-server/v2/server"
)

// Usage is how full JetStream's store is. At Limit, JetStream refuses all writes.
type Usage struct {
	Stored int64 // bytes of all streams

	// Promised is how many bytes streams with a limit may still add.
	Promised int64

	Limit int64
}

// Usage may return [ErrNotRunning].
func (b *Broker) Usage() (Usage, error) {
	s, err := b.running()
	if err != nil {
		return Usage{}, err
	}
	info, err := s.Jsz(&server.JSzOptions{Streams: true, Config: true})
	if err != nil {
		return Usage{}, fmt.Errorf("usage of the store: %w", err)
	}
	u := Usage{Stored: int64(info.Store), Limit: info.Config.MaxStore}
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			if stream.Config != nil && stream.Config.MaxBytes > 0 {
				u.Promised += max(0, stream.Config.MaxBytes-int64(stream.State.Bytes))
			}
		}
	}
	return u, nil
}
