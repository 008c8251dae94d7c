package policies_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/policies"
)

// What policies see is an interface: this is the whole of it.
func TestInputJSON(t *testing.T) {
	t.Parallel()
	full := &policies.Input{
		Identity: "web1.example.net",
		Proof:    "token",
		Token: policies.Token{
			ID: "0a1b", Signer: "ops", Issuer: "Choria Tokens Package", Org: "choria", Site: "ams",
			Identities: []string{"web*.example.net"}, Uses: 1, Extensions: []byte(`{"rack":4}`),
			IssuedAt: noon, ExpiresAt: noon.Add(time.Hour), Secure: true, URLs: []string{"prov1:4222"}, Default: true,
		},
		CSR: policies.CSR{
			CommonName: "web1.example.net", DNSNames: []string{"web1.example.net"}, IPAddresses: []string{"192.0.2.1"},
			URIs: []string{"spiffe://x/node/y"}, Emails: []string{"root@example.net"},
			Key:        policies.Key{Type: "P-256", Hash: "00ff"},
			Extensions: map[string]string{"pp_role": "web"}, Challenge: "s3",
		},
		Facts: []byte(`{"role":"web"}`),
		Node: policies.Node{
			State:         "applied",
			Reason:        "continuity",
			Serial:        "0b",
			ProvisionedAt: noon,
			ExpiresAt:     noon,
		},
		Allow: &policies.AllowEntry{
			Pattern:   "web*.example.net",
			Comment:   "rack 4",
			ExpiresAt: noon.In(time.FixedZone("CET", 3600)),
		},
		Source:      policies.Source{Address: "192.0.2.7", Site: "ams", Protocol: "choria"},
		Provisioner: policies.Provisioner{Site: "ams", Version: "1.0.0"},
		Certificate: &policies.ServiceRequest{Name: "https", Profile: "web", Network: "internal", Source: "file"},
		Evidence:    []byte(`{"tpm":1}`),
		Time:        noon,
	}
	tests := map[string]struct {
		in   *policies.Input
		want string
	}{
		"full": {full, `{"identity":"web1.example.net","proof":"token",
			"token":{"id":"0a1b","signer":"ops","issuer":"Choria Tokens Package","org":"choria","site":"ams","identities":["web*.example.net"],
				"uses":1,"extensions":{"rack":4},"issued_at":"2026-03-01T12:00:00Z","expires_at":"2026-03-01T13:00:00Z",
				"secure":true,"urls":["prov1:4222"],"srv_domain":"","default":true},
			"csr":{"common_name":"web1.example.net","dns_names":["web1.example.net"],"ip_addresses":["192.0.2.1"],"uris":["spiffe://x/node/y"],
				"emails":["root@example.net"],"key":{"type":"P-256","hash":"00ff"},"extensions":{"pp_role":"web"},"challenge":"(secret)"},
			"facts":{"role":"web"},"facts_error":"",
			"node":{"state":"applied","reason":"continuity","serial":"0b","cloned":false,"provisioned_at":"2026-03-01T12:00:00Z","expires_at":"2026-03-01T12:00:00Z"},
			"allow":{"pattern":"web*.example.net","comment":"rack 4","expires_at":"2026-03-01T12:00:00Z"},
			"source":{"address":"192.0.2.7","site":"ams","protocol":"choria"},
			"provisioner":{"site":"ams","version":"1.0.0"},
			"certificate":{"name":"https","profile":"web","network":"internal","usages":["server"],"source":"file"},
			"evidence":{"tpm":1},"time":"2026-03-01T12:00:00Z"}`},
		"empty": {&policies.Input{Token: policies.Token{Extensions: []byte(" null ")}, Time: noon}, `{"identity":"","proof":"",
			"token":{"id":"","signer":"","issuer":"","org":"","site":"","identities":[],"uses":0,"extensions":{},
				"secure":false,"urls":[],"srv_domain":"","default":false},
			"csr":{"common_name":"","dns_names":[],"ip_addresses":[],"uris":[],"emails":[],"key":{"type":"","hash":""},"extensions":{},"challenge":""},
			"facts":{},"facts_error":"","node":{"state":"","reason":"","serial":"","cloned":false},"allow":null,
			"source":{"address":"","site":"","protocol":""},
			"provisioner":{"site":"","version":""},"certificate":null,"evidence":null,"time":"2026-03-01T12:00:00Z"}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := wire.EncodeJSON(policies.NewRecording(tt.in, nil, nil, "").Input)
			if err != nil {
				t.Fatal(err)
			}
			var want bytes.Buffer
			if err := json.Compact(&want, []byte(tt.want)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), string(got)); diff != "" {
				t.Errorf("JSON: -want +got\n%s", diff)
			}
			// A recorded input can be read back and is the same input.
			var back policies.Input
			if err := wire.DecodeStrict(got, &back); err != nil {
				t.Fatal(err)
			}
			again, err := wire.EncodeJSON(&back)
			if err != nil || !bytes.Equal(again, got) {
				t.Errorf("read back = %s, %v", again, err)
			}
		})
	}
}

func TestParseInput(t *testing.T) {
	t.Parallel()
	in, err := policies.ParseInput([]byte(`{"identity":"web1.example.net","facts":{"role":"web"}}`))
	fromYAML, _ := policies.ParseInput([]byte("identity: web1.example.net\nfacts: {role: web}\n"))
	if in == nil || fromYAML == nil || fromYAML.Identity != in.Identity || string(fromYAML.Facts) != string(in.Facts) {
		t.Errorf("ParseInput of YAML = %+v, want %+v", fromYAML, in)
	}
	if err != nil || in.Node.Reason != "new" || in.Node.State != "none" || len(in.CSR.DNSNames) != 1 ||
		in.CSR.CommonName != in.Identity || in.Source.Protocol != "muster" || in.Proof != "token" {
		t.Errorf("ParseInput = %+v, %v", in, err)
	}
	for name, text := range map[string]string{"no identity": `{}`, "a misspelling": `{"identity":"a.b","fact":{}}`,
		"no JSON": `x`} {
		if in, err := policies.ParseInput([]byte(text)); err == nil || in != nil {
			t.Errorf("%s: %+v, %v, want an error alone", name, in, err)
		}
	}
}
