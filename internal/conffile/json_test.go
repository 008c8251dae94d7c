package conffile_test

import (
	"testing"

	"muster/internal/conffile"
)

// TestToJSON has YAML as Choria, Ruby and people write facts. Errors are empty here.
func TestToJSON(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"role: web\n":                    `{"role":"web"}`,
		"--- \nrole: \"web\"\nn: 012\n":  `{"n":10,"role":"web"}`,
		"big: 12345678901234567890123\n": `{"big":1.2345678901234568e+22}`,
		"f: 1.50\nb: true\nz: ~\n":       `{"b":true,"f":1.5,"z":null}`,
		"day: 2001-12-14\nyes: yes\n":    `{"day":"2001-12-14","yes":"yes"}`,
		"a: &x [1]\nb: *x\n":             `{"a":[1],"b":[1]}`,
		"{a: {b: 1}}":                    `{"a":{"b":1}}`,
		"1: one\n:key: two\n":            `{"1":"one",":key":"two"}`,
		"o: !ruby/object:Foo {a: 1}\n":   `{"o":{"a":1}}`,
		"a: 1\na: 2\n":                   "",
		"1: a\n\"1\": b\n":               "",
		"a: .inf\n":                      "",
		"a: &x {b: 1}\nc: {<<: *x}\n":    `{"a":{"b":1},"c":{"b":1}}`,
		"[a]: 1\n":                       "",
		"a: 1\n---\nb: 2\n":              "",
		"# nothing\n":                    "",
		"a: &a [*a]\n":                   "",
	} {
		got, err := conffile.ToJSON([]byte(in))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("ToJSON(%q) = %s, %v, want %q", in, got, err, want)
		}
	}
}
