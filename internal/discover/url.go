package discover

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"muster/internal/wire"
)

// maxURLBytes is enough for the longest host name, a scheme and a port.
const maxURLBytes = 300

var defaultPorts = map[string]int{"nats": 4222, "tls": 4222, "ws": 80, "wss": 443}

// NormalizeURL returns scheme://host:port. It accepts host or host:port, optionally after nats://, tls://, ws:// or
// wss://. Ports default to 4222, 80 (ws) and 443 (wss). With secure, nats becomes tls and ws becomes wss.
// Credentials and paths are refused and not printed.
func NormalizeURL(s string, secure bool) (string, error) {
	b, err := parseURL(s, secure)
	return b.URL, err
}

func parseURL(s string, secure bool) (Broker, error) {
	text := strings.TrimSpace(s)
	if len(text) > maxURLBytes {
		return Broker{}, fmt.Errorf("broker URL of %d bytes, limit %d", len(text), maxURLBytes)
	}
	if strings.Contains(text, "@") {
		return Broker{}, errors.New("broker URL contains credentials (not shown): " +
			"want scheme://host:port, with user and password in separate settings")
	}
	bad := func(format string, args ...any) (Broker, error) {
		return Broker{}, fmt.Errorf("broker URL %q: %s", s, fmt.Sprintf(format, args...))
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		scheme, rest = "nats", text
	}
	scheme = strings.ToLower(scheme)
	standard, ok := defaultPorts[scheme]
	if !ok {
		return bad("scheme %q, want nats, tls, ws or wss", scheme)
	}
	if secure {
		scheme = map[string]string{"nats": "tls", "tls": "tls", "ws": "wss", "wss": "wss"}[scheme]
		standard = defaultPorts[scheme]
	}
	if strings.Count(rest, ":") > 1 && !strings.HasPrefix(rest, "[") {
		return bad("more than one colon; write an IPv6 address in brackets")
	}
	u, err := url.Parse("//" + strings.TrimSuffix(rest, "/"))
	if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery ||
		strings.ContainsAny(rest, "#%") {
		return bad("want host, host:port or scheme://host:port")
	}
	host, err := parseHost(u.Hostname(), strings.HasPrefix(u.Host, "["))
	if err != nil {
		return bad("%v", err)
	}
	port := standard
	if text := u.Port(); text != "" || strings.HasSuffix(u.Host, ":") {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return bad("port %q, want 1 to 65535", text)
		}
		port = int(n)
	}
	return newBroker(scheme, host, port, SourceStatic), nil
}

func parseHost(s string, brackets bool) (string, error) {
	addr, err := netip.ParseAddr(s)
	switch {
	case err == nil && addr.Zone() == "" && addr.Is6() == brackets:
		return addr.String(), nil
	case err == nil || brackets:
		return "", fmt.Errorf("host %q, want a host name, an IPv4 address or an IPv6 address in brackets", s)
	}
	name, err := wire.ParseName(s)
	if err != nil {
		return "", fmt.Errorf("host: %w", err)
	}
	return string(name), nil
}
