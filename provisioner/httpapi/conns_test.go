package httpapi_test

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// TestConnectionsOfOneAddressAreBounded holds connections open without a word, as
// slowloris does: beyond so many the next one is dropped at once.
func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	t.Parallel()
	f := served(t)
	const most = 256 // half of all
	for i := range most + 1 {
		c, err := net.Dial("tcp", strings.TrimPrefix(f.Daemon().APIURL(), "https://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if i < most {
			continue
		}
		if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) && !strings.Contains(err.Error(), "reset") {
			t.Errorf("connection %d: %d bytes, %v", i+1, n, err)
		}
	}
}
