package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"syscall"
)

// ErrNotServing means that no provisioner answers at a socket.
var ErrNotServing = errors.New("no provisioner answers")

// A Client asks the provisioner of this machine. It is safe for concurrent use.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client for the socket at path. It opens nothing.
func NewClient(path string) *Client {
	return &Client{socket: path, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, path) },
	}}}
}

// Do sends one request with in as its body, nil for none, and decodes the
// answer into out, nil to drop it. The error is a *[Problem] if the provisioner
// refused, [ErrNotServing] if there is none.
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://provisioner"+path, &body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return c.explain(err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode >= http.StatusBadRequest {
		p := &Problem{Status: resp.StatusCode}
		if err := json.NewDecoder(resp.Body).Decode(p); err != nil || p.Title == "" {
			p.Title = "provisioner answered " + resp.Status
		}
		return p
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("answer of the provisioner: %w", err)
	}
	return nil
}

// explain says what a failed connection means.
func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w; run this as root or as the provisioner's user", c.socket, syscall.EACCES)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("%w at %s: start it with `muster provisioner run`, or name its configuration with --config", ErrNotServing, c.socket)
	}
	return err
}
