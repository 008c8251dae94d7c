package facts

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// plainFact is the Finder written with encoding/json.
func plainFact(in map[string]any, name string) (string, bool) {
	switch v := in[name].(type) {
	case string:
		return v, true
	case json.Number:
		return v.String(), true
	case bool:
		return fmt.Sprint(v), true
	}
	first, rest, ok := strings.Cut(name, ".")
	if !ok {
		return "", false
	}
	inner, ok := in[first].(map[string]any)
	if !ok {
		return "", false
	}
	return plainFact(inner, rest)
}

func found(facts string, names ...string) map[string]string {
	all := make(map[string]string)
	NewFinder(names).find([]byte(facts), func(name, value string) { all[name] = value })
	return all
}

func TestFactsAreFoundByName(t *testing.T) {
	t.Parallel()
	for facts, want := range map[string]map[string]string{
		`{"role":"web","os":{"name":"Debian","release":{"full":"13.1"}}}`: {"role": "web",
			"os.name": "Debian", "os.release.full": "13.1"},
		"\n{ \"role\" : \"web\" ,\t\"os\" : { \"name\" : \"Debian\" } , \"x\" : [ 1 , { } ] } ": {"role": "web",
			"os.name": "Debian"},
		`{"os.name":"as it is","os":{"name":"below"}}`:                           {"os.name": "as it is"},
		`{"os":{"name":"below"},"os.name":"as it is"}`:                           {"os.name": "as it is"},
		`{"os.name":{"x":1},"os":{"name":"below"}}`:                              {"os.name": "below"},
		`{"os":{"release.full":"13"},"os.release":{"full":"of no first label"}}`: {"os.release.full": "13"},
		`{"os":"a text","role":{"name":"an object"}}`:                            {"os": "a text"},
		`{"role":["a","list"],"os":null,"os.name":[],"os.release.full":{}}`:      {},
		`{"role":-1.50e3,"os":true,"os.name":false}`: {"role": "-1.50e3", "os": "true",
			"os.name": "false"},
		`{"role":"a \"quoted\\\" \u00e9","r\u006fle":"escaped"}`: {"role": "escaped"},
		`{"x":"a\\","y":"\\\\","z":["\\"],"role":"b\\"}`:         {"role": `b\`},
		`{"role":"","x":{"role":"elsewhere"}}`:                   {"role": ""},
		`{"x":"}","y":"{","z":["]","\\\"["],"role":"web"}`:       {"role": "web"},
		`{}`: {}, `[]`: {}, `"role"`: {}, ``: {}, `{"role"`: {}, `{"role":`: {}, `{"role":"web"`: {},
		`{"role":"web\"}`: {}, `{"x":{"role":"web"}`: {},
		`{"role":"web",}`: {}, `{"role" "web"}`: {}, `{role:"web"}`: {},
	} {
		if diff := cmp.Diff(want, found(facts, "role", "os", "os.name", "os.release.full", "role")); diff != "" {
			t.Errorf("%s: -want +found\n%s", facts, diff)
		}
	}
	var none *Finder
	none.find([]byte(`{"role":"web"}`), func(string, string) { t.Error("nothing is looked for, and found") })
}

// TestFactsAreFoundAsInJSON compares random facts with encoding/json. Damaged ones must not panic.
func TestFactsAreFoundAsInJSON(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b", "a.a", "a.b", "b.a", "a.b.a", "a.a.b", "b.b.b.b"}
	var object func(depth int) any
	object = func(depth int) any {
		o := make(map[string]any)
		for _, name := range names {
			switch rand.IntN(12) {
			case 0:
				o[name] = "text \"\\ é\n" + name
			case 1:
				o[name] = rand.IntN(100)
			case 2:
				o[name] = []any{name, map[string]any{"a": "in a list"}}
			case 3, 4:
				if depth < 4 {
					o[name] = object(depth + 1)
				}
			case 5:
				o[name] = nil
			case 6:
				o[name] = true
			}
		}
		return o
	}
	rounds, hits := 3000, 0
	if testing.Short() {
		rounds = 500
	}
	for range rounds {
		facts, err := json.Marshal(object(0))
		if err != nil {
			t.Fatal(err)
		}
		d := json.NewDecoder(bytes.NewReader(facts))
		d.UseNumber()
		var all map[string]any
		if err := d.Decode(&all); err != nil {
			t.Fatal(err)
		}
		want := make(map[string]string)
		for _, name := range names {
			if text, ok := plainFact(all, name); ok {
				want[name] = text
				hits++
			}
		}
		if diff := cmp.Diff(want, found(string(facts), names...)); diff != "" {
			t.Fatalf("%s: -want +found\n%s", facts, diff)
		}
		for range 10 {
			at := rand.IntN(len(facts) + 1)
			to := min(len(facts), at+rand.IntN(3))
			found(string(facts[:at])+string([]byte{"\"\\{}[]:,x"[rand.IntN(9)]})+string(facts[to:]), names...)
			found(string(facts[:at]), names...)
		}
	}
	if hits == 0 {
		t.Error("nothing was ever found")
	}
}

// TestPlainFactsWithoutSecretsAreKept also leaves out long values and several lines.
func TestPlainFactsWithoutSecretsAreKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxBytes)
	finder := NewFinder([]string{"role", "os.name"})
	for value, want := range map[string]string{
		`"web"`: "web", `4`: "4", `true`: "true", `"Zürich"`: "Zürich", `"a=b/c*"`: "a=b/c*",
		`""`: "", `null`: "", `["a"]`: "", `{"a":"b"}`: "", `"two\nlines"`: "", `"a\u0007bell"`: "", `"\u0085"`: "",
		`"` + long + `"`: long, `"` + long + `x"`: "", `"` + strings.Repeat(`\u0078`, MaxBytes) + `"`: long,
		`"eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2ln"`: "", `"key eyJhbGciOiJF"`: "",
		`"-----BEGIN PRIVATE KEY-----MC4CAQAwBQYDK2VwBCIEIA=="`: "",
	} {
		facts := json.RawMessage(`{"role":` + value + `,"os":{"name":"Debian"},"other":"x"}`)
		kept := finder.Kept(facts)
		if kept.Value("role") != want || kept.Value("os.name") != "Debian" || kept.Value("other") != "" ||
			want == "" && len(kept) != 1 {
			t.Errorf("role %s: kept %v, want %q", value, kept, want)
		}
		if !slices.IsSortedFunc(kept, func(a, b Fact) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("in no order: %v", kept)
		}
	}
	if kept := finder.Kept(json.RawMessage(`{"other":"x"}`)); kept != nil {
		t.Errorf("kept %v of nothing that is named", kept)
	}
}

func TestNamesOfKeptFactsAreChecked(t *testing.T) {
	t.Parallel()
	if errs := CheckKept(DefaultKept()); errs != nil {
		t.Errorf("the default: %v", errs)
	}
	if errs := CheckKept([]string{"ipaddress_eth0:1",
		"mounts./var.size", strings.Repeat("x", maxNameBytes)}); errs != nil {
		t.Errorf("odd names: %v", errs)
	}
	wrong := []string{"", "a..b", ".a", "a.", "a=b", "a b", "é", "a\"", strings.Repeat("x", maxNameBytes+1),
		"db.password", "api_key", "ok", "ok"}
	errs := CheckKept(wrong)
	if len(errs) != len(wrong)-1 {
		t.Errorf("%d errors, want one for each but one: %v", len(errs), errs)
	}
	if errs := CheckKept(make([]string, MaxKept+1)); len(errs) == 0 ||
		!strings.Contains(errs[0].Error(), "17 facts to keep with each record, limit 16") {
		t.Errorf("too many: %v", errs)
	}
}

func TestFactFilters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "name", "=x", "name=[", `name=\`} {
		if f, err := ParseFilter(text); err == nil {
			t.Errorf("%q is %+v", text, f)
		}
	}
	for _, value := range []string{"web", "a*b", "a?b", "[a]", `a\b`, "a/b", "a=b", "*"} {
		own := Fact{"role", value}.Filter()
		f, err := ParseFilter(own)
		if err != nil || f.Name != "role" || !f.Match(value) || f.Match(value+"x") || f.Match("a/x/b") {
			t.Errorf("%s: %+v, %v", own, f, err)
		}
	}
	if f, err := ParseFilter("path=/srv/*"); err != nil || !f.Match("/srv/a/b") || f.Match("/var/srv/a") {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestFactsInJSON(t *testing.T) {
	t.Parallel()
	var f Facts
	for text, want := range map[string]Facts{`{"b":"1","a":"<2>"}`: {{"a", "<2>"}, {"b", "1"}}, `{}`: nil,
		`null`: nil} {
		if err := json.Unmarshal([]byte(text), &f); err != nil || !slices.Equal(f, want) {
			t.Errorf("%s: %v, %v, want %v", text, f, err, want)
		}
	}
	for _, text := range []string{`[]`, `{"a":1}`, `"a"`} {
		if err := json.Unmarshal([]byte(text), &f); err == nil {
			t.Errorf("%s is taken for %v", text, f)
		}
	}
	f = Facts{{"a", "1"}, {"c", "3"}}
	if f.Value("a") != "1" || f.Value("c") != "3" || f.Value("b") != "" || Facts(nil).Value("a") != "" {
		t.Errorf("values of %v", f)
	}
}

func BenchmarkKeptFacts(b *testing.B) {
	for _, size := range []int{2 << 10, 20 << 10} {
		var text strings.Builder
		text.WriteString(
			`{"fqdn":"web1.example.net","datacenter":"ams1","role":"web","environment":"production",` +
				`"os":{"name":"debian","release":{"full":"13.1"}},"packages":{`)
		for i := 0; text.Len() < size; i++ {
			fmt.Fprintf(&text, `"library-%04d":"2.%d.%d-1+deb13",`, i, i%17, i%5)
		}
		text.WriteString(`"end":"1.0"}}`)
		facts := json.RawMessage(text.String())
		for name, names := range map[string][]string{"none": nil, "default": DefaultKept()} {
			finder := NewFinder(names)
			b.Run(fmt.Sprintf("%s/%dKB", name, size>>10), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if kept := finder.Kept(facts); finder != nil && len(kept) != 5 {
						b.Fatal(kept)
					}
				}
			})
		}
	}
}
