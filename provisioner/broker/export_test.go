package broker

import (
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
)

// Server returns the NATS server of a running broker.
func (b *Broker) Server() *server.Server {
	s, err := b.running()
	if err != nil {
		panic(err)
	}
	return s.Server
}

const AllCommands = allCommands

// LockFile is the lock file of a store directory.
func LockFile(dir string) string { return filepath.Join(dir, lockFile) }

func Render(format string, v ...any) (text, address string, client bool) { return render(format, v) }
