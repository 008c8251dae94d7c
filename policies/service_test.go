package policies_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/policies"
)

// service is a node's request for a service certificate.
func service(names ...string) *policies.Input {
	in := stranger()
	in.Proof, in.Node = policies.ProofCertificate, policies.Node{State: "provisioned", Reason: "renew"}
	in.CSR = policies.CSR{DNSNames: names}
	in.Certificate = &policies.ServiceRequest{Name: "https", Source: "file"}
	return in
}

// withRules returns paths of a policy that admits nodes and has the rules about service certificates.
func withRules(rules string) fstest.MapFS {
	return fstest.MapFS{"p.rego": {Data: []byte(allowAll)},
		"c.rego": {Data: []byte("package muster.certificate\n\n" + rules + "\n")}}
}

// TestBuiltinServiceRulesPassTheirTests runs the tests that operators copy with the rules.
func TestBuiltinServiceRulesPassTheirTests(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{"p.rego": {Data: []byte(allowAll)}}
	for _, name := range []string{"certificate.rego", "certificate_test.rego"} {
		b, err := os.ReadFile("builtin/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: b}
	}
	results, warnings, err := policies.Test(t.Context(), policies.Config{Paths: at(t, files)})
	if err != nil || len(results) < 6 || len(warnings) > 0 {
		t.Fatalf("%d tests, warnings %q, %v", len(results), warnings, err)
	}
	for _, r := range results {
		if r.Result != "pass" {
			t.Errorf("%s: %s %q %s", r.Name, r.Result, r.Failed, r.Error)
		}
	}
}

// TestBuiltinServiceDecisions asks a policy without rules about service certificates.
func TestBuiltinServiceDecisions(t *testing.T) {
	t.Parallel()
	names := `{"certificate_names": {"web1.example.net": ["www.example.net", "192.0.2.1"], "web2.example.net": ["shop.example.net"]}}`
	e, err := policies.Load(policies.Config{Paths: at(t, fstest.MapFS{
		"p.rego": {Data: []byte(allowAll)}, "data.json": {Data: []byte(names)}})})
	if err != nil {
		t.Fatal(err)
	}
	bare := load(t, "allow := true") // without a data file
	tests := map[string]struct {
		edit func(*policies.Input)
		says string // of the reason to deny; "": allowed
		bare bool   // allowed without the data file
	}{
		"own name":          {func(*policies.Input) {}, "", true},
		"below it":          {func(in *policies.Input) { in.CSR.DNSNames = []string{"a.web1.example.net"} }, "", true},
		"of the data":       {func(in *policies.Input) { in.CSR.DNSNames = []string{"www.example.net"} }, "", false},
		"address of data":   {func(in *policies.Input) { in.CSR.IPAddresses = []string{"192.0.2.1"} }, "", false},
		"of another's data": {func(in *policies.Input) { in.CSR.DNSNames = []string{"shop.example.net"} }, `shop.example.net`, false},
		"another address":   {func(in *policies.Input) { in.CSR.IPAddresses = []string{"192.0.2.9"} }, `192.0.2.9`, false},
		"a URI":             {func(in *policies.Input) { in.CSR.URIs = []string{"https://a/"} }, `"https://a/"`, false},
		"e-mail":            {func(in *policies.Input) { in.CSR.Emails = []string{"a@web1.example.net"} }, "a@web1", false},
		"wildcard":          {func(in *policies.Input) { in.CSR.DNSNames = []string{"*.web1.example.net"} }, "*.web1", false},
		"client":            {func(in *policies.Input) { in.Certificate.Usages = []string{"client"} }, `"client"`, false},
		"no name":           {func(in *policies.Input) { in.CSR.DNSNames = nil }, "names nothing", false},
		"a common name": {func(in *policies.Input) {
			in.CSR.CommonName, in.CSR.DNSNames = "db1.example.net", nil
		}, "names nothing", false},
		"facts ask nicely": {func(in *policies.Input) {
			in.CSR.DNSNames = []string{"db1.example.net"}
			in.Facts = []byte(`{"allowed_names":["db1.example.net"],"identity":"db1.example.net"}`)
		}, `db1.example.net`, false},
		"a token's patterns": {func(in *policies.Input) {
			in.CSR.DNSNames, in.Token.Identities = []string{"db1.example.net"}, []string{"*.example.net"}
		}, `db1.example.net`, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := service("web1.example.net")
			tt.edit(in)
			d, err := e.Decide(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Verdict(); (got == policies.VerdictAllow) != (tt.says == "") ||
				tt.says != "" && !strings.Contains(strings.Join(d.Why(), " "), tt.says) {
				t.Errorf("verdict %s, %q, want %q", got, d.Why(), tt.says)
			}
			c := d.Certificate
			if tt.says == "" && (!slices.Equal(c.DNSNames, in.CSR.DNSNames) || !slices.Equal(c.IPAddresses, in.CSR.IPAddresses) ||
				!c.ServerAuth || c.ClientAuth || d.Configuration != nil) {
				t.Errorf("certificate %+v", c)
			}
			if d, err := bare.Decide(t.Context(), in); err != nil || (d.Verdict() == policies.VerdictAllow) != tt.bare {
				t.Errorf("without the data file: %+v, %v", d, err)
			}
		})
	}
}

// TestServiceRules tries rules of operators, which take the place of the built-in ones.
func TestServiceRules(t *testing.T) {
	t.Parallel()
	const named = "certificate.dns_names := {\"WWW.example.net.\"}\n"
	tests := map[string]struct {
		rules string
		want  policies.Decision
	}{
		"nothing": {"default allow := false", policies.Decision{Certificate: policies.Certificate{ServerAuth: true}}},
		"all members": {"allow := true\napproval := true\nreasons contains \"ask\"\n" +
			`certificate := {"ttl": "5m", "dns_names": ["www.example.net"], "ip_addresses": ["192.0.2.1"],
				"uris": ["https://www.example.net/"], "server_auth": false, "client_auth": true}`,
			policies.Decision{Allow: true, Approval: true, Reasons: []string{"ask"}, Certificate: policies.Certificate{
				TTL: 5 * time.Minute, DNSNames: []string{"www.example.net"}, IPAddresses: []string{"192.0.2.1"},
				URIs: []string{"https://www.example.net/"}, ClientAuth: true}}},
		"names are folded": {"allow := true\n" + named, policies.Decision{Allow: true,
			Certificate: policies.Certificate{DNSNames: []string{"www.example.net"}, ServerAuth: true}}},
		"usages that none names": {"allow if input.certificate.usages == [\"server\"]\n" + named, policies.Decision{Allow: true,
			Certificate: policies.Certificate{DNSNames: []string{"www.example.net"}, ServerAuth: true}}},
		"deferred": {"allow := true\ndefer := true", policies.Decision{Allow: true, Defer: true,
			Certificate: policies.Certificate{ServerAuth: true}}},
		"approval without a name": {"allow := false\napproval := true", policies.Decision{Approval: true,
			Deny:        []string{"`certificate` names nothing: want dns_names, ip_addresses or uris"},
			Certificate: policies.Certificate{ServerAuth: true}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := policies.Load(policies.Config{Paths: at(t, withRules(tt.rules))})
			if err != nil {
				t.Fatal(err)
			}
			got, err := e.Decide(t.Context(), service("web1.example.net"))
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Digest = e.Digest()
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("Decide: -want +got\n%s", diff)
			}
			if d, err := e.Decide(t.Context(), stranger()); err != nil || !d.Allow || d.Approval {
				t.Errorf("about a node: %+v, %v", d, err)
			}
		})
	}
}

// TestServiceRulesFailClosed: neither package decides what is the other's, and a wrong type denies.
func TestServiceRulesFailClosed(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string]string{
		"allow undefined":    "allow if input.identity == \"x\"",
		"allow of text":      "allow := \"yes\"",
		"Puppet's extension": "allow := true\ncertificate := {\"common_name\": \"x\"}",
		"names of numbers":   "allow := true\ncertificate := {\"uris\": [1]}",
		"a failing function": "allow := true\ndeny contains \"x\" if not to_number(input.identity) == 1",
	} {
		e, err := policies.Load(policies.Config{Paths: at(t, withRules(rules))})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d, err := e.Decide(t.Context(), service("web1.example.net")); d != nil || !errors.Is(err, policies.ErrPolicy) {
			t.Errorf("%s: %+v, %v, want %v", name, d, err, policies.ErrPolicy)
		}
		if d, err := e.Decide(t.Context(), stranger()); err != nil || !d.Allow {
			t.Errorf("%s: about a node: %+v, %v", name, d, err)
		}
	}
	if _, err := policies.Load(policies.Config{Paths: at(t, withRules("deny contains \"x\""))}); !errors.Is(err,
		policies.ErrInvalid) || !strings.Contains(err.Error(), "data.muster.certificate.allow") {
		t.Errorf("rules without allow: %v", err)
	}
}

// TestServiceRulesWarn about members that are another package's, and about samples.
func TestServiceRulesWarn(t *testing.T) {
	t.Parallel()
	follow := func(_ context.Context, in *policies.Input, _ *policies.Decision) (wire.Files, error) {
		if in.Certificate != nil {
			return wire.Files{}, errors.New("no such name")
		}
		return wire.Files{}, nil
	}
	e, err := policies.Load(policies.Config{Follow: follow, Paths: at(t, withRules("allow := true\nshutdown := true\n"+
		"denied contains \"x\"\ncertificate := {\"dns_names\": input.csr.dns_names}"))})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(e.Warnings(), "\n")
	for _, want := range []string{"muster.certificate.shutdown is used by no rule", "muster.certificate.denied is used by no",
		"for a service certificate of a node without facts: no such name"} {
		if !strings.Contains(text, want) {
			t.Errorf("no warning %q in\n%s", want, text)
		}
	}
	if n := len(e.Warnings()); n != 4 { // and that there are no tests
		t.Errorf("%d warnings, want 4:\n%s", n, text)
	}
}

func TestDecisionsPushSpecifications(t *testing.T) {
	t.Parallel()
	in := stranger()
	in.Facts = []byte(`{"networks": {"internal": {"fqdn": "web1.internal.example.net"}}}`)
	tests := map[string]struct {
		rules string
		want  map[string]wire.Specification
	}{
		"undefined": {"", nil},
		"none":      {"certificates := {}", map[string]wire.Specification{}},
		"one": {`certificates := {"www": {"dns_names": {input.facts.networks.internal.fqdn}, "key": {"type": "P-384", "keep": true},
			"files": {"key": {"path": "/etc/muster/tls/www.key", "mode": "0640"}, "certificate": {"path": "/etc/muster/tls/www.pem"}}}}`,
			map[string]wire.Specification{"www": {DNSNames: []string{"web1.internal.example.net"},
				Key: wire.SpecificationKey{Type: "P-384", Keep: true}, Files: map[string]wire.SpecificationFile{
					"key":         {Path: "/etc/muster/tls/www.key", Mode: "0640"},
					"certificate": {Path: "/etc/muster/tls/www.pem"}}}}},
		"by rules": {`certificates[name] := {"uris": ["https://a/"], "files": {"combined": {"path": path}}} if some name, path in {"a": "/a"}`,
			map[string]wire.Specification{"a": {URIs: []string{"https://a/"}, Files: map[string]wire.SpecificationFile{"combined": {Path: "/a"}}}}},
	}
	for name, tt := range tests {
		d, err := load(t, "allow := true\n"+tt.rules).Decide(t.Context(), in)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.want, d.Certificates); diff != "" {
			t.Errorf("%s: -want +got\n%s", name, diff)
		}
	}
	for name, rules := range map[string]string{
		"null": "certificates := null", "a list": "certificates := []", "a text": `certificates := "www"`,
		"an unknown member":       `certificates := {"www": {"hook": "reboot"}}`,
		"a mode that is a number": `certificates := {"www": {"files": {"key": {"path": "/a", "mode": 640}}}}`,
		"a number for a name":     `certificates := {"www": {"dns_names": [1]}}`,
	} {
		d, err := load(t, "allow := true\n"+rules).Decide(t.Context(), in)
		if d != nil || !errors.Is(err, policies.ErrPolicy) || !strings.Contains(err.Error(), "certificates") {
			t.Errorf("%s: %+v, %v, want %v", name, d, err, policies.ErrPolicy)
		}
	}
}

func TestParseInputOfAServiceCertificate(t *testing.T) {
	t.Parallel()
	in, err := policies.ParseInput([]byte("identity: web1.example.net\ncertificate: {name: https}\n"))
	if err != nil || in.Proof != policies.ProofCertificate || in.Node.State != "provisioned" || in.Node.Reason != "renew" ||
		!slices.Equal(in.CSR.DNSNames, []string{"web1.example.net"}) {
		t.Errorf("ParseInput = %+v, %v", in, err)
	}
	in, err = policies.ParseInput([]byte(
		"identity: web1.example.net\ncertificate: {name: https}\ncsr: {ip_addresses: [192.0.2.1]}\nproof: token\n"))
	if err != nil || in.Proof != policies.ProofToken || in.CSR.DNSNames != nil {
		t.Errorf("ParseInput = %+v, %v", in, err)
	}
}

// TestReplayKeepsServiceCertificatesApart from their node.
func TestReplayKeepsServiceCertificatesApart(t *testing.T) {
	t.Parallel()
	live := load(t, "allow := true")
	next, err := policies.Load(policies.Config{Paths: at(t, withRules("default allow := false"))})
	if err != nil {
		t.Fatal(err)
	}
	r := policies.NewReplay(next)
	for _, in := range []*policies.Input{stranger(), service("web1.example.net")} {
		d, err := live.Decide(t.Context(), in)
		b, merr := json.Marshal(policies.NewRecording(in, d, err, live.Digest()))
		if merr != nil {
			t.Fatal(merr)
		}
		replayAll(t, r, append(b, '\n'))
	}
	report := r.Report()
	if report.Nodes != 2 || report.Flipped != 1 || report.Differences[0].Node != "web1.example.net/https" ||
		report.Differences[0].To != policies.VerdictDeny {
		t.Errorf("report %+v", report)
	}
}

// TestTheDocumentedServiceRulesWork loads what docs/policies.md shows.
func TestTheDocumentedServiceRulesWork(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../docs/policies.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(b), "\n## Service certificates\n")
	var blocks []string
	for i, part := range strings.Split(text, "```") {
		if i%2 == 1 {
			blocks = append(blocks, part)
		}
	}
	data, rules, pushed := strings.TrimPrefix(blocks[0], "yaml"), strings.TrimPrefix(blocks[1], "rego"),
		strings.TrimPrefix(blocks[2], "rego")
	e, err := policies.Load(policies.Config{Paths: at(t, fstest.MapFS{
		"p.rego":    {Data: []byte(allowAll + pushed)},
		"c.rego":    {Data: []byte(rules)},
		"data.yaml": {Data: []byte(data + "networks: {internal: {web1.example.net: web1.internal.example.net}}\n")},
	})})
	if err != nil {
		t.Fatal(err)
	}
	in := service("web1.internal.example.net")
	in.Certificate.Network, in.Certificate.Profile = "internal", "public"
	if d, err := e.Decide(t.Context(), in); err != nil || d.Verdict() != policies.VerdictApproval ||
		d.Certificate.TTL != 7*24*time.Hour {
		t.Errorf("Decide = %+v, %v", d, err)
	}
	in.CSR.DNSNames = []string{"web1.example.net"}
	in.Certificate.Profile = ""
	if d, err := e.Decide(t.Context(), in); err != nil || d.Verdict() != policies.VerdictDeny {
		t.Errorf("Decide = %+v, %v", d, err)
	}
	node := stranger()
	node.Facts = []byte(`{"services": ["haproxy"]}`)
	d, err := e.Decide(t.Context(), node)
	if err != nil {
		t.Fatal(err)
	}
	files := wire.Files{Configuration: map[string]string{"a": "b"}, Certificates: d.Certificates}
	if err := files.Check(); err != nil || len(d.Certificates) != 1 {
		t.Errorf("pushed: %+v, %v", d.Certificates, err)
	}
	builtin, err := policies.Load(policies.Config{Paths: at(t, fstest.MapFS{"p.rego": {Data: []byte(allowAll)},
		"data.yaml": {Data: []byte(data)}})})
	if err != nil {
		t.Fatal(err)
	}
	in = service("www.example.net")
	in.CSR.IPAddresses = []string{"192.0.2.10"}
	if d, err := builtin.Decide(t.Context(), in); err != nil || d.Verdict() != policies.VerdictAllow {
		t.Errorf("Decide = %+v, %v", d, err)
	}
}
