package provisioner_test

import (
	"errors"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// TestSpecificationsAreOfferedWithTheConfiguration changes nothing but the service certificates that a node is to have:
// another offer, once, until the node confirms it.
func TestSpecificationsAreOfferedWithTheConfiguration(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll

allow := true

configuration := {"identity": input.identity}

certificates[name] := {
	"dns_names": ["{{.identity}}"],
	"files": {"combined": {"path": sprintf("/etc/muster/tls/%s.pem", [name])}},
	"action": input.facts.action,
} if some name in input.facts.wanted
`})
	n := f.Node("web1.example.net")
	ask := func(facts string) *wire.Enrolled {
		t.Helper()
		n.Facts = []byte(facts)
		return f.Enroll(n)
	}
	first := ask(`{"wanted": []}`)
	if first.Certificates == nil || len(first.Certificates) != 0 {
		t.Errorf("none are wanted, and pushed is %v", first.Certificates)
	}
	f.Apply(n, first)
	second := ask(`{"wanted": ["haproxy"], "action": "reload"}`)
	if s := second.Certificates["haproxy"]; s.Action != "reload" || s.Files["combined"].Path != "/etc/muster/tls/haproxy.pem" ||
		second.Serial != first.Serial || second.Digest == first.Digest {
		t.Errorf("pushed: %+v", second)
	}
	if again := ask(`{"wanted": ["haproxy"], "action": "reload"}`); again.Digest != second.Digest {
		t.Errorf("another digest for the same set")
	}
	if r := f.Record(n.Identity); r.Next == nil || r.Next.Digest != second.Digest || f.Revisions(n.Identity) != 3 {
		t.Errorf("%d revisions, the last %+v", f.Revisions(n.Identity), r)
	}
	f.Apply(n, second)
	n.Facts = []byte(`{"wanted": ["haproxy"], "action": "../../bin/sh"}`)
	if got := f.Refused(n); got != wire.CodeConfigurationFailed {
		t.Errorf("a specification that no node follows: %s, want %s", got, wire.CodeConfigurationFailed)
	}
	f.Check()
}

// TestOtherSystemsGetNoSpecifications previews one decision for clients of each protocol.
func TestOtherSystemsGetNoSpecifications(t *testing.T) {
	t.Parallel()
	p := &provisioner.Preview{PolicyOnly: true, MaxTTL: ca.DefaultMaxTTL,
		Choria: func(wire.Identity) *provisioner.Edge { return &provisioner.Edge{} }}
	d := &policies.Decision{Allow: true, Configuration: map[string]string{"a": "b"},
		Certificates: map[string]wire.Specification{"www": {URIs: []string{"https://a/"},
			Files: map[string]wire.SpecificationFile{"combined": {Path: "/etc/muster/tls/www.pem"}}}}}
	for protocol, want := range map[string]int{"muster": 1, "choria": 0, "puppet": 0} {
		in := &policies.Input{Identity: "web1.example.net", Source: policies.Source{Protocol: protocol}}
		if files, err := p.Follow(t.Context(), in, d); err != nil || len(files.Certificates) != want {
			t.Errorf("%s: %v, %v, want %d", protocol, files.Certificates, err, want)
		}
	}
}

// TestPreviewsOfServiceCertificates finds what the authority would refuse.
func TestPreviewsOfServiceCertificates(t *testing.T) {
	t.Parallel()
	p := &provisioner.Preview{PolicyOnly: true, MaxTTL: ca.DefaultMaxTTL}
	for name, tt := range map[string]struct {
		edit func(*policies.Certificate)
		code wire.Code
	}{
		"as it should be":   {func(*policies.Certificate) {}, ""},
		"a wildcard":        {func(c *policies.Certificate) { c.DNSNames = []string{"*.example.net"} }, wire.CodeCertificateFailed},
		"a reserved name":   {func(c *policies.Certificate) { c.DNSNames = []string{"puppet"} }, wire.CodeCertificateFailed},
		"a loopback":        {func(c *policies.Certificate) { c.IPAddresses = []string{"127.0.0.1"} }, wire.CodeCertificateFailed},
		"a broken URI":      {func(c *policies.Certificate) { c.URIs = []string{"x"} }, wire.CodeCertificateFailed},
		"for nobody":        {func(c *policies.Certificate) { c.ServerAuth = false }, wire.CodeCertificateFailed},
		"for 31 days":       {func(c *policies.Certificate) { c.TTL = ca.ServiceMaxTTL + 1e9 }, wire.CodeCertificateFailed},
		"Puppet extensions": {func(c *policies.Certificate) { c.Extensions = map[string]string{"pp_role": "a"} }, wire.CodeCertificateFailed},
	} {
		in := &policies.Input{Identity: "web1.example.net", Certificate: &policies.ServiceRequest{Name: "www"}}
		d := &policies.Decision{Allow: true, Certificate: policies.Certificate{DNSNames: []string{"www.example.net"}, ServerAuth: true}}
		tt.edit(&d.Certificate)
		_, err := p.Follow(t.Context(), in, d)
		refusal, _ := errors.AsType[*provisioner.Refusal](err)
		if (tt.code == "") != (err == nil) || refusal != nil && refusal.Code != tt.code {
			t.Errorf("%s: %v, want %q", name, err, tt.code)
		}
	}
	in := &policies.Input{Identity: "web1.example.net"}
	d := &policies.Decision{Allow: true, Certificate: policies.Certificate{URIs: []string{"https://a/"}}}
	if _, err := p.Follow(t.Context(), in, d); err == nil {
		t.Error("the certificate of a node with a URI passes")
	}
}
