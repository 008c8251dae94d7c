package provisioner

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzPickFacts holds what is picked of facts to what a decoder finds in them: the
// same values of the same names, and nothing else. What is no object is left to the decoder.
func FuzzPickFacts(f *testing.F) {
	for _, seed := range []string{
		`{}`, ` { } `, `null`, `[1]`, `{"role":"web"}`, `{"a":1, "role" : {"role":[1,"}"]},"b":"\"role\":2"}`, `{"ro\u006ce":"web","x":null}`,
		`{"role":1.5e3,"os":{"name":"Debian \\"}}`, `{"role"`, `{"role":}`, `{"role":1`, `{"role":1}x`, `{"x":"\\","role":true}`, `{"os":[],"role":-1,}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		wanted := map[string]bool{"role": true, "os": true}
		picked := PickFacts(json.RawMessage(text), func(name []byte) bool { return wanted[string(name)] })
		var all, got map[string]any
		if json.Unmarshal([]byte(text), &all) != nil {
			return // wire refuses it
		}
		if err := json.Unmarshal(picked, &got); err != nil {
			t.Fatalf("%q becomes %q: %v", text, picked, err)
		}
		for name := range all {
			if !wanted[name] {
				delete(all, name)
			}
		}
		for name := range got {
			if len(all) == 0 && string(picked) == text { // nothing to pick from
				delete(got, name)
			}
		}
		if diff := cmp.Diff(all, got); diff != "" && len(all)+len(got) > 0 {
			t.Errorf("%q becomes %q: -want +got\n%s", text, picked, diff)
		}
	})
}
