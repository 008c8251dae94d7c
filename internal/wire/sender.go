package wire

import (
	"errors"
	"strings"
)

// requestInfoHeader is set by the broker over the client's. Repeated or malformed headers can trick nats-server 2.15.2
// and nats.go. So it is trusted only if it is the only header; nodes send none.
const requestInfoHeader = "Nats-Request-Info"

// ErrForged means that a message has other headers than the broker's: a client's header may imitate it.
var ErrForged = errors.New("the request has other headers than the broker's " + requestInfoHeader)

// A Sender is the connection of a message according to the broker, the used part of server.ClientInfo of nats-server.
type Sender struct {
	Host    string `json:"host"`   // address without a port; "" if unknown
	Server  string `json:"server"` // name of the client's server
	Account string `json:"acc"`    // "" for an account of the provisioners
	User    string `json:"user"`   // as the broker's gate set it
}

// SenderOf reads a message's headers, of so many bytes. The error is [ErrForged].
func SenderOf(header map[string][]string, bytes int) (Sender, error) {
	var s Sender
	if bytes == 0 {
		return s, nil // from an account of our own
	}
	said := header[requestInfoHeader]
	if len(header) != 1 || len(said) != 1 ||
		bytes != len("NATS/1.0\r\n"+requestInfoHeader+": "+"\r\n\r\n")+len(said[0]) {
		return s, ErrForged
	}
	_ = DecodeKnown([]byte(said[0]), &s) // unreadable is empty: an unknown sender
	return s, nil
}

const siteSeparator = "@"

// ServerName returns a broker's NATS name, from which provisioners learn the site of its nodes.
func ServerName(name, site string) string { return name + siteSeparator + site }

// SiteOfServer returns the site in a broker's NATS name, or "".
func SiteOfServer(name string) string {
	_, site, _ := strings.Cut(name, siteSeparator)
	return site
}
