// Package socket lets programs on a machine ask its agent. A connection to the Unix socket has one request and one
// answer, each a line of JSON. Only root and the agent's own user may ask.
package socket

import (
	"bufio"
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

	"muster/internal/wire"
)

// ErrNoAgent means that no agent answers at the path.
var ErrNoAgent = errors.New("the agent does not answer")

const (
	maxLine = wire.MaxReplyBytes // a certificate with its authority fits
	// Timeout bounds a request with its answer: a request to a provisioner takes 15 s at most.
	Timeout    = time.Minute
	concurrent = 16
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
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve answers requests until ctx is done, and closes l. answer gets a line and returns the answer; calls are
// concurrent.
func Serve(ctx context.Context, l net.Listener, answer func(ctx context.Context, request []byte) any) {
	stop := context.AfterFunc(ctx, func() { _ = l.Close() }) // removes the socket
	defer stop()
	var running sync.WaitGroup
	defer running.Wait()
	slots := make(chan struct{}, concurrent)
	for {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // no file descriptor is left
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
			continue
		}
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			serve(ctx, conn, answer)
		})
	}
}

// serve ignores what it cannot read or write: the program that asked sees it, too.
func serve(ctx context.Context, conn net.Conn, answer func(context.Context, []byte) any) {
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(Timeout))
	if checkPeer(conn) != nil {
		return
	}
	if line, err := readLine(conn); err == nil {
		_ = json.NewEncoder(conn).Encode(answer(ctx, line))
	}
}

// Ask sends a request to the agent at path and decodes its answer. The error wraps [ErrNoAgent] if no agent answers in
// time.
func Ask(ctx context.Context, path string, request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	if err := checkPeer(conn); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	err = json.NewEncoder(conn).Encode(request)
	var line []byte
	if err == nil {
		line, err = readLine(conn)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoAgent, path, err)
	}
	return wire.DecodeKnown(line, answer)
}

func readLine(r io.Reader) ([]byte, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	if !lines.Scan() {
		if err := lines.Err(); err != nil {
			return nil, err
		}
		return nil, io.ErrUnexpectedEOF
	}
	return lines.Bytes(), nil
}
