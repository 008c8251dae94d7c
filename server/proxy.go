package server

import (
	"bufio"
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpproxy"

	"muster/internal/discover"
)

// noProxy is the setting that asks no proxy, whatever the environment says.
const noProxy = "none"

// maxProxyAnswer bounds the headers of a proxy's answer; chosen, they are a few
// hundred bytes.
const maxProxyAnswer = 64 << 10

// proxyFor returns the HTTP proxy through which b is reached, nil for none. Only
// WebSocket goes through proxies: they are made for what browsers do, and let
// through port 443 at most. What Config says comes first, then server.conf, then
// the environment as curl and Go's programs read it: HTTPS_PROXY for wss,
// HTTP_PROXY for ws, and NO_PROXY. The error holds no password.
func (s *Server) proxyFor(c *conf, b discover.Broker) (*url.URL, error) {
	scheme, rest, _ := strings.Cut(b.URL, "://")
	standIn := map[string]string{"ws": "http", "wss": "https"}[scheme]
	if standIn == "" {
		return nil, nil
	}
	setting := s.cfg.Proxy
	if c != nil {
		setting = cmp.Or(setting, c.proxy)
	}
	switch setting {
	case noProxy:
		return nil, nil
	case "":
		proxy, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: standIn, Host: rest})
		if err != nil || proxy == nil {
			return nil, hideProxy(err)
		}
		return parseProxy(proxy.String())
	default:
		return parseProxy(setting)
	}
}

// hideProxy keeps what the environment says, which may hold a password, to
// itself.
func hideProxy(err error) error {
	if err != nil {
		return errProxy
	}
	return nil
}

// parseProxy reads the URL of a proxy: http://host:port, perhaps with user and
// password. The error does not show it.
func parseProxy(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
		return nil, errProxy
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "80")
	}
	return u, nil
}

var errProxy = &cause{what: fmt.Errorf("the proxy's URL cannot be used (not shown): want http://host:port or http://user:password@host:port"),
	remedy: "correct proxy in server.conf, or HTTPS_PROXY in the agent's environment"}

// tunnel asks the proxy at the other end of conn to connect it to address (RFC
// 9110 section 9.3.6). The proxy looks up the address's name. It is the caller
// who ends it in time, by closing conn.
func tunnel(ctx context.Context, conn net.Conn, proxy *url.URL, address string) error {
	request := (&http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{"User-Agent": {"muster"}}}).WithContext(ctx)
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		request.Header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.Username()+":"+password)))
	}
	if err := request.Write(conn); err != nil {
		return fmt.Errorf("proxy %s: %w", proxy.Host, err)
	}
	answer := bufio.NewReader(io.LimitReader(conn, maxProxyAnswer))
	response, err := http.ReadResponse(answer, request)
	if err != nil {
		return fmt.Errorf("proxy %s: %w", proxy.Host, err)
	}
	_ = response.Body.Close() // of CONNECT it is the tunnel
	switch {
	case response.StatusCode == http.StatusProxyAuthRequired:
		return &cause{what: fmt.Errorf("proxy %s wants user and password", proxy.Host), remedy: "put them into the proxy's URL: http://user:password@host:port"}
	case response.StatusCode != http.StatusOK:
		return &cause{what: fmt.Errorf("proxy %s does not connect to %s: %.80s", proxy.Host, address, response.Status),
			remedy: "allow the broker's address and port at the proxy: many let through nothing but port 443"}
	case answer.Buffered() > 0: // a broker speaks second
		return fmt.Errorf("proxy %s: speaks before the broker does", proxy.Host)
	}
	return nil
}
