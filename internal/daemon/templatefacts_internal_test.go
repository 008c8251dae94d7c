package daemon

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/policies"
)

// TestTemplatesSeeTheFactsThatTheyName has templates name facts in every way that
// there is: what is found to be named, and what is written, as if all had been decoded.
func TestTemplatesSeeTheFactsThatTheyName(t *testing.T) {
	t.Parallel()
	facts := []byte(`{"role":"web","os":{"name":"Debian","release":"13"},"disks":["sda","sdb"],"r\u0061ck":4,"name":"x"}`)
	for text, want := range map[string]string{
		"a = {{ .Identity }}\n":   "",
		"a = {{ .Facts.role }}\n": "role",
		"a = {{ $.Facts.role }}{{ with .Facts.os }}{{ .name }}{{ end }}\n":                           "os role",
		"a = {{ join .Facts.disks \",\" }}\n":                                                        "disks",
		"a = {{ if eq .Facts.role \"web\" }}{{ .Facts.rack }}{{ else }}{{ .Facts.name }}{{ end }}\n": "name rack role",
		"a = {{ (index .Facts.disks 0) }}{{ (.Facts).role }}\n":                                      "any",
		"a = {{ range $k, $v := .Facts }}{{ $k }}{{ end }}\n":                                        "any",
		"a = {{ len .Facts }}\n":                                                                     "any",
		"a = {{ with .Facts }}{{ .role }}{{ end }}\n":                                                "any",
		"a = {{ $x := . }}{{ $x.Facts.role }}\n":                                                     "any",
		"a = {{ with $ }}{{ .Facts.role }}{{ end }}\n":                                               "any",
		"a = {{ printf \"%s\" .Facts.role | printf \"%s-%s\" .Facts.rack }}\n":                       "rack role",
		"{{ define \"x\" }}{{ .Facts.role }}{{ end }}a = {{ template \"x\" . }}\n":                   "role",
		"{{ define \"x\" }}{{ .role }}{{ end }}a = {{ template \"x\" .Facts }}\n":                    "any",
	} {
		c, err := newTemplate(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := "any"
		if c.facts != nil {
			var names []string
			for name := range c.facts {
				names = append(names, name)
			}
			slices.Sort(names)
			got = strings.Join(names, " ")
		}
		if got != want {
			t.Errorf("%s: names %q, want %q", text, got, want)
		}
		in := &policies.Input{Identity: "web1.example.net", Facts: facts}
		some, err := c.render(in)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		c.facts = nil
		all, err := c.render(in)
		if diff := cmp.Diff(all.Configuration, some.Configuration); diff != "" || err != nil {
			t.Errorf("%s: %v, -all +some\n%s", text, err, diff)
		}
	}
}

// TestNumbersOfExtensionsArePrintedAsTheyAre, as those of facts are.
func TestNumbersOfExtensionsArePrintedAsTheyAre(t *testing.T) {
	t.Parallel()
	c, err := newTemplate("asset = {{ with .Extensions.asset }}{{ . }}{{ end }}\nid = {{ .Facts.asset }}\n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.render(&policies.Input{Identity: "web1.example.net", Facts: []byte(`{"asset": 12345678}`), Token: policies.Token{Extensions: []byte(`{"asset": 12345678}`)}})
	if err != nil {
		t.Fatal(err)
	}
	if got.Configuration["asset"] != "12345678" || got.Configuration["id"] != "12345678" {
		t.Errorf("configuration = %v", got.Configuration)
	}
}
