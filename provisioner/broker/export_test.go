package broker

import (
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

// AllCommands covers every node's command subject.
const AllCommands = allCommands

// Render is what the logger makes of a line of the server's.
func Render(format string, v ...any) (text, address string, client bool) { return render(format, v) }
