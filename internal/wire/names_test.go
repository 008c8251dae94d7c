package wire_test

import (
	"testing"

	"muster/internal/wire"
)

// TestNamesFromPeople are folded, and nothing becomes a name that looks like another one.
func TestNamesFromPeople(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]wire.Identity{
		"web1.example.net":       "web1.example.net",
		" WEB1.Example.NET.\r\n": "web1.example.net",
		"web1..":                 "",
		"web 1":                  "",
		"\u212aey.example.net":   "", // the Kelvin sign, whose lower case is k
		"\ufeffweb1":             "",
		"192.0.2.1.":             "",
		"":                       "",
	} {
		if got, err := wire.ParseName(in); got != want || (err == nil) != (want != "") {
			t.Errorf("ParseName(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
	if p, err := wire.ParseNamePattern(" WEB*.Example.NET. "); p != "web*.example.net" || err != nil {
		t.Errorf("ParseNamePattern = %q, %v", p, err)
	}
	for _, in := range []string{"9F:86:D0:81", " 9f86d081\n", "SHA256:9f86d081", "9f86 d081"} {
		if got := wire.FoldHash(in); got != "9f86d081" {
			t.Errorf("FoldHash(%q) = %q", in, got)
		}
	}
}
