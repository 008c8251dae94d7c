package link

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
	"muster/server/advice"
)

// NoProxy is the setting that asks no proxy, whatever the environment says.
const NoProxy = "none"

// maxProxyAnswer bounds the headers of a proxy's answer, which are a few hundred bytes.
const maxProxyAnswer = 64 << 10

// errProxy shows no URL, since that may hold a password.
var errProxy = advice.Errorf("correct proxy in server.conf, or HTTPS_PROXY in the agent's environment",
	"the proxy's URL cannot be used (not shown): want http://host:port or http://user:password@host:port")

// CheckProxy reports what is wrong with a setting of a proxy. The error does not show it.
func CheckProxy(setting string) error {
	if setting == "" || setting == NoProxy {
		return nil
	}
	_, err := parseProxy(setting)
	return err
}

// proxyFor returns the HTTP proxy through which b is reached, nil for none. Only
// WebSocket goes through proxies. Config comes first, then setting, then the
// environment as curl and Go's programs read it: HTTPS_PROXY for wss, HTTP_PROXY
// for ws, and NO_PROXY.
func (d *Dialer) proxyFor(b discover.Broker, setting string) (*url.URL, error) {
	scheme, rest, _ := strings.Cut(b.URL, "://")
	like := map[string]string{"ws": "http", "wss": "https"}[scheme]
	if like == "" {
		return nil, nil
	}
	switch setting = cmp.Or(d.cfg.Proxy, setting); setting {
	case NoProxy:
		return nil, nil
	case "":
		proxy, err := httpproxy.FromEnvironment().ProxyFunc()(&url.URL{Scheme: like, Host: rest})
		if err != nil {
			return nil, errProxy
		}
		if proxy == nil {
			return nil, nil
		}
		setting = proxy.String()
	}
	return parseProxy(setting)
}

func parseProxy(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return nil, errProxy
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), "80")
	}
	return u, nil
}

// tunnel asks the proxy at the other end of conn to connect it to address (RFC
// 9110, section 9.3.6). The caller ends it in time, by closing conn.
func tunnel(ctx context.Context, conn net.Conn, proxy *url.URL, address string) error {
	request := (&http.Request{
		Method: http.MethodConnect,
		URL:    &url.URL{Opaque: address},
		Host:   address,
		Header: http.Header{"User-Agent": {"muster"}},
	}).WithContext(ctx)
	if u := proxy.User; u != nil {
		password, _ := u.Password()
		basic := base64.StdEncoding.EncodeToString([]byte(u.Username() + ":" + password))
		request.Header.Set("Proxy-Authorization", "Basic "+basic)
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
		return advice.Errorf("put them into the proxy's URL: http://user:password@host:port",
			"proxy %s wants user and password", proxy.Host)
	case response.StatusCode != http.StatusOK:
		return advice.Errorf("allow the broker's address and port at the proxy: many let through nothing but port 443",
			"proxy %s does not connect to %s: %.80s", proxy.Host, address, response.Status)
	case answer.Buffered() > 0: // a broker speaks second
		return fmt.Errorf("proxy %s: speaks before the broker does", proxy.Host)
	}
	return nil
}
