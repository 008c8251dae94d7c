package policies

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"
)

// FuzzDecision checks that nothing that a policy could give panics the decoder
// or makes a decision beside an error, that a decision is within its bounds, and
// that it is the same when a policy gives it again.
func FuzzDecision(f *testing.F) {
	for _, s := range []string{
		`{"allow":[true]}`, `{"allow":[false],"deny":[["no","never"]],"reasons":[[]]}`, `{}`, `{"allow":[]}`, `{"allow":[1]}`, `{"allow":[true,false]}`,
		`{"allow":[true],"certificate":[{"ttl":"24h","dns_names":["a.b"],"server_auth":true}],"configuration":[{"a":"b"}]}`,
		`{"allow":[true],"certificate":[{"ttl":3600}]}`, `{"allow":[true],"configuration":[{"a":1}]}`, `{"allow":[true],"certificate":[{"x":1}]}`,
		`{"allow":[true],"defer":[null],"approval":[{}]}`, `{"allow":[true],"deny":[["\u0000"]]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		decoder := json.NewDecoder(bytes.NewReader(b))
		decoder.UseNumber()
		var result map[string]any
		if decoder.Decode(&result) != nil {
			return
		}
		d, err := newDecision(value(t, result))
		if err != nil {
			if d != nil {
				t.Fatalf("a decision beside the error: %+v", d)
			}
			return
		}
		if len(d.Deny) > MaxReasons || len(d.Reasons) > MaxReasons {
			t.Fatalf("%d and %d reasons, limit %d", len(d.Deny), len(d.Reasons), MaxReasons)
		}
		for _, r := range append(append([]string(nil), d.Deny...), d.Reasons...) {
			if len(r) > MaxReasonBytes || !utf8.ValidString(r) {
				t.Fatalf("reason %q", r)
			}
		}
		if d.Certificate.TTL < 0 {
			t.Fatalf("a lifetime of %v", d.Certificate.TTL)
		}
		list := func(values []string) []any {
			all := []any{}
			for _, v := range values {
				all = append(all, v)
			}
			return all
		}
		certificate := map[string]any{"dns_names": list(d.Certificate.DNSNames), "server_auth": d.Certificate.ServerAuth}
		if d.Certificate.TTL > 0 {
			certificate["ttl"] = d.Certificate.TTL.String()
		}
		again := map[string]any{
			"allow": []any{d.Allow}, "deny": []any{list(d.Deny)}, "defer": []any{d.Defer}, "approval": []any{d.Approval}, "shutdown": []any{d.Shutdown},
			"reasons": []any{list(d.Reasons)}, "certificate": []any{certificate},
		}
		if d.Configuration != nil {
			configuration := map[string]any{}
			for k, v := range d.Configuration {
				configuration[k] = v
			}
			again["configuration"] = []any{configuration}
		}
		d2, err := newDecision(value(t, again))
		if err != nil || !reflect.DeepEqual(d, d2) {
			t.Fatalf("round trip: %+v became %+v, %v", d, d2, err)
		}
	})
}

// value returns a Go value as Rego's.
func value(t *testing.T, v any) ast.Value {
	t.Helper()
	made, err := ast.InterfaceToValue(v)
	if err != nil {
		t.Skip(err) // a number that OPA does not take
	}
	return made
}
