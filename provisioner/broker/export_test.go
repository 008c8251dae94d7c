package broker

import (
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Server returns the NATS server of a running broker, for tests that look at
// its settings from outside.
func (b *Broker) Server() *server.Server {
	s, err := b.running()
	if err != nil {
		panic(err)
	}
	return s
}

// WatchEvery has [External.Watch] look so often. Call it before that.
func (e *External) WatchEvery(d time.Duration) { e.watchEvery = d }

// AllCommands covers every node's command subject.
const AllCommands = allCommands

// Render is what the logger makes of a line of the server's.
func Render(format string, v ...any) (text, address string, client bool) { return render(format, v) }
