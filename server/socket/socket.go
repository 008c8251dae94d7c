// Package socket lets programs on a machine ask its agent. A connection to the Unix socket has one request and one
// answer, each a value in JSON. Only root and the agent's own user may ask.
package socket

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"muster/internal/peer"
	"muster/internal/wire"
)

// ErrNoAgent means that no agent answers at the path.
var ErrNoAgent = errors.New("the agent does not answer")

// Limits of a connection: a certificate with its authority fits, and a provisioner has 15 s to answer.
const (
	maxBytes = wire.MaxReplyBytes
	maxTime  = time.Minute
)

// Listen makes the socket, and its directory if that is missing, for the agent's user alone. It takes the place of a
// socket that no process listens at.
func Listen(path string) (net.Listener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		return nil, errors.Join(fmt.Errorf("%s: another agent listens there", path), conn.Close())
	}
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		_ = os.Remove(path) // of a killed agent
	}
	l, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	return l, err
}

// Serve answers requests until ctx is done, and closes l. Calls of answer are concurrent.
func Serve(ctx context.Context, l net.Listener, answer func(context.Context, json.RawMessage) any) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var running sync.WaitGroup
	defer running.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		running.Go(func() {
			ctx, end := bounded(ctx, conn)
			defer end()
			var request json.RawMessage
			if mayAsk(conn) && receive(conn, &request) == nil {
				_ = json.NewEncoder(conn).Encode(answer(ctx, request)) // the program has ended
			}
		})
	}
}

// mayAsk leaves the check to the permissions of the socket where the system does not know the user.
func mayAsk(conn net.Conn) bool {
	uid, err := peer.UID(conn)
	return errors.Is(err, errors.ErrUnsupported) || err == nil && (uid == 0 || int(uid) == os.Geteuid())
}

// Ask sends a request to the agent at path and decodes its answer. The error wraps [ErrNoAgent] if no agent answers in
// time.
func Ask(ctx context.Context, path string, request, answer any) error {
	conn, err := net.DialTimeout("unix", path, maxTime)
	if err == nil {
		_, end := bounded(ctx, conn)
		defer end()
		err = errors.Join(json.NewEncoder(conn).Encode(request), receive(conn, answer))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	return nil
}

// bounded ends conn in time, with ctx, or with end.
func bounded(ctx context.Context, conn net.Conn) (_ context.Context, end func()) {
	ctx, end = context.WithTimeout(ctx, maxTime)
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return ctx, end
}

func receive(conn net.Conn, value any) error {
	return json.NewDecoder(io.LimitReader(conn, maxBytes)).Decode(value)
}
