package helper

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode checks that no output makes the decoder panic or answer along
// with an error, and that what it accepts means the same written again.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `null`, `{"defer":true,"msg":"later"}`, `{"shutdown":true}`, `{"configuration":{"a":"1"}}`,
		`{"configuration":{"a":1}}`, `{"configuration": null}`,
		`{"action_policies":{"rpcutil":"x"},"opa_policies":{"a.b":"y"}}`,
		`{"opa_policies":{"../x":"y"}}`, `{"certificate":"x"}`, `{"certificate":"","server_claims":{ }}`, `{"a":1}`,
		`{} {}`,
		"{\"msg\":\"\xff\"}", `{"msg":"\ud800"}`, `{"configuration":{ "a" : "1" }}`, `{"key":[0]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decode(b)
		if err != nil {
			if r != nil || !errors.Is(err, ErrOutput) {
				t.Fatalf("decode = %+v, %v, want nil, %v", r, err, ErrOutput)
			}
			return
		}
		again, err := json.Marshal(map[string]any{
			"defer": r.Defer, "shutdown": r.Shutdown, "msg": r.Msg, "configuration": r.Files.Configuration,
			"action_policies": r.Files.ActionPolicies, "opa_policies": r.Files.OPAPolicies,
		})
		if err != nil {
			t.Fatal(err)
		}
		r2, err := decode(again)
		if err != nil {
			t.Fatalf("our own encoding is refused: %v", err)
		}
		if diff := cmp.Diff(r, r2); diff != "" {
			t.Fatalf("round trip: -first +again\n%s", diff)
		}
	})
}
