package attacks_test

import (
	"crypto/tls"
	"net/http"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/ca"
)

// TestServiceCertificatesOpenNothing shows a genuine one, which is also for clients and has the names of its node, to
// the broker, the API and the port of Puppet agents. None admits it, also not beside the node's own token.
func TestServiceCertificatesOpenNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Puppet: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
	}})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	ours, _ := authorityOf(t, f)
	for name, r := range map[string]ca.Request{
		"a service": {Role: wire.RoleService, Name: "web1.example.net/https", DNSNames: []string{"web1.example.net"}},
		"a service named like a node": {Role: wire.RoleService, Name: "web1.example.net/node",
			URIs: []string{"spiffe://other.test/node/web1.example.net"}},
	} {
		r.ServerAuth, r.ClientAuth = true, true
		c := &tls.Config{Certificates: []tls.Certificate{certified(t, ours, r)}, InsecureSkipVerify: true}
		for _, opts := range [][]nats.Option{nil, {nats.Token(f.Token(nil))}} {
			nc, err := nats.Connect(f.URL(), append(opts, nats.Name(wire.NewID()), nats.Secure(c))...)
			if err == nil {
				nc.Close()
				t.Errorf("%s: the broker admits it, with %d options", name, len(opts))
			}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c}}
		t.Cleanup(client.CloseIdleConnections)
		for _, url := range []string{f.Daemon().APIURL() + "/v1/self", f.Daemon().APIURL() + "/v1/nodes",
			f.PuppetURL() + "/puppet/v3/node/web1.example.net", f.PuppetURL() + "/puppet-ca/v1/certificate_statuses/x"} {
			request, err := http.NewRequestWithContext(f.Context(), http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusUnauthorized && answer.StatusCode != http.StatusForbidden {
				t.Errorf("%s: %s answers %s", name, url, answer.Status)
			}
		}
	}
	f.Check()
}
