package httpapi

import (
	"net/http"

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
