package policies

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// What policies see is what is recorded: the value that is made directly is
// the one that the input's JSON decodes to.
func TestValueIsJSON(t *testing.T) {
	t.Parallel()
	cet := time.FixedZone("CET", 3600)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 123456789, cet)
	tests := map[string]*Input{
		"empty": {},
		"full": {
			Identity: "web1.example.net",
			Token: Token{
				ID: "0a1b", Signer: "ops", Issuer: "x", Org: "choria", Site: "ams", Identities: []string{"a", "b"},
				Uses:       3,
				Extensions: []byte(`{"rack":[4,2.50,null,true,"\u00fc"]}`), IssuedAt: noon, ExpiresAt: noon,
				Secure: true,
				URLs:   []string{"prov1:4222"}, SRVDomain: "example.net", Default: true,
			},
			CSR: CSR{CommonName: "a", DNSNames: []string{"a"}, IPAddresses: []string{"192.0.2.1"}, URIs: []string{"b"},
				Emails: []string{"c"},
				Key:    Key{Type: "P-256", Hash: "00"}, Extensions: map[string]string{"pp_role": "web", "pp_zone": ""},
				Challenge: "s3"},
			Facts:       []byte(` {"role":"web","nested":{"a":[1]}}`),
			Node:        Node{State: "applied", Reason: "replay", Serial: "0b", ProvisionedAt: noon, ExpiresAt: noon},
			Allow:       &AllowEntry{Pattern: "*", Comment: "c", ExpiresAt: noon},
			Source:      Source{Address: "192.0.2.7", Site: "ams", Protocol: "choria"},
			Provisioner: Provisioner{Site: "ams", Version: "1"},
			Evidence:    []byte(`[1]`),
			Certificate: &ServiceRequest{Name: "https", Usages: []string{"client"}},
			Time:        noon,
		},
		"nulls and zero times elsewhere": {
			Token: Token{Extensions: []byte(" null\n"), IssuedAt: time.Time{}.In(cet)}, Facts: []byte("null"),
			Evidence: []byte("null"), Allow: &AllowEntry{},
		},
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, err := json.Marshal(in.complete())
			if err != nil {
				t.Fatal(err)
			}
			want, err := ast.ValueFromReader(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			got, err := in.value(everything)
			if err != nil {
				t.Fatal(err)
			}
			if got.Compare(want) != 0 {
				t.Errorf("value = %v\nwant    %v", got, want)
			}
		})
	}
}
