package httpapi

import (
	"net/http"
	"time"

	"muster/provisioner"
)

// Describe returns the document of a server that serves nobody.
func Describe() ([]byte, error) {
	s, err := New(Config{Socket: "unused", Provisioner: &provisioner.Provisioner{}})
	if err != nil {
		return nil, err
	}
	return s.describe()
}

// Observe has wrap see all that the client sends and gets.
func (c *Client) Observe(wrap func(http.RoundTripper) http.RoundTripper) *Client {
	c.http.Transport = wrap(c.http.Transport)
	return c
}

// Changes reports whether a route changes something.
func Changes(pattern string) bool { return routes[pattern].changes }

// SetClock gives the client another clock, as one of a machine whose clock is
// wrong has it. It is called before the first request, and before Observe.
func (c *Client) SetClock(now func() time.Time) {
	c.http.Transport.(*http.Transport).TLSClientConfig.Time = now
}
