package policies

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestLinesAreAsMarshaled holds the fast way to json.Marshal, byte for byte, and
// sees that what JSON escapes goes the other.
func TestLinesAreAsMarshaled(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 120_000_000, time.FixedZone("CET", 3600))
	full := func() *Recording {
		return &Recording{
			Input: &Input{
				Identity: "web1.example.net",
				Token: Token{ID: "t", Signer: "s", Issuer: "i", Org: "o", Site: "ams1", Identities: []string{"web*", "db*"}, Uses: 7, Extensions: []byte(`{"a":[1,"b"]}`),
					IssuedAt: at, ExpiresAt: at, Secure: true, URLs: []string{"nats://a:1"}, SRVDomain: "example.net", Default: true},
				CSR: CSR{CommonName: "web1.example.net", DNSNames: []string{"web1.example.net"}, IPAddresses: []string{"::1"}, URIs: []string{"spiffe://a/b"},
					Emails: []string{"a@b"}, Key: Key{Type: "P-256", Hash: "5b1f"}},
				Facts: []byte(`{"role":"web","n":[1,2.50,null]}`),
				Node:  Node{State: "provisioned", Reason: "renew", Serial: "5b", Cloned: true, ProvisionedAt: at, ExpiresAt: at},
				Allow: &AllowEntry{Pattern: "web*", Comment: "rack 7", ExpiresAt: at}, Source: Source{Address: "10.1.2.3", Site: "fra1"},
				Provisioner: Provisioner{Site: "ams1", Version: "1.0"}, Time: at,
			},
			Verdict: VerdictAllow, Reasons: []string{"a", "b"}, TTL: time.Hour, DNSNames: []string{"x.example.net"}, ServerAuth: true,
			Configuration: "c0", Policy: "p0", Redacted: true,
		}
	}
	for name, tt := range map[string]struct {
		edit func(*Recording)
		slow bool
	}{
		"full":      {func(*Recording) {}, false},
		"empty":     {func(r *Recording) { *r = Recording{Input: &Input{}} }, false},
		"null":      {func(r *Recording) { r.Input.Token.Extensions, r.Input.Facts = []byte("null"), []byte(" null ") }, false},
		"no expiry": {func(r *Recording) { r.Input.Allow.ExpiresAt = time.Time{} }, false},
		"quote":     {func(r *Recording) { r.Reasons[1] = `"` }, true},
		"escaped":   {func(r *Recording) { r.Input.Allow.Comment = "a\\" }, true},
		"HTML":      {func(r *Recording) { r.Input.Source.Site = "<" }, true},
		"Unicode":   {func(r *Recording) { r.Input.Allow.Comment = "größer" }, true},
		"no UTF-8":  {func(r *Recording) { r.Input.CSR.Emails[0] = "\xff" }, true},
		"evidence":  {func(r *Recording) { r.Input.Evidence = []byte(`{"a":1}`) }, true},
		"blanks":    {func(r *Recording) { r.Input.Token.Extensions = []byte(`{"a": 1}`) }, true},
	} {
		r := full()
		tt.edit(r)
		want, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for range 2 { // what was found compact is remembered
			w := lineWriter{}
			w.recording(r)
			if w.unusual != tt.slow || !tt.slow && string(w.b) != string(want) {
				t.Errorf("%s: unusual %v, want %v\n%s\n%s", name, w.unusual, tt.slow, w.b, want)
			}
			line, err := r.AppendLine([]byte("before"))
			if err != nil || string(line) != "before"+string(want)+"\n" {
				t.Errorf("%s: %v\n%s\n%s", name, err, line, want)
			}
		}
	}
	r := full()
	r.Input.Time = time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)
	if line, err := r.AppendLine([]byte("before")); err == nil || string(line) != "before" {
		t.Errorf("a year that JSON has not: %s, %v", line, err)
	}
}

// TestDigestIsAsMarshaled holds the digest of a configuration to that of its JSON.
func TestDigestIsAsMarshaled(t *testing.T) {
	t.Parallel()
	for text, c := range map[string]map[string]string{
		`{}`:                          {},
		`{"":"","a":"1","a.b":"2"}`:   {"a.b": "2", "a": "1", "": ""},
		`{"a":"\u003c\"größer\""}`:    {"a": `<"größer"`},
		`{"a":"` + long + `","b":""}`: {"a": long, "b": ""},
	} {
		sum := sha256.Sum256([]byte(text))
		if got, want := ConfigurationDigest(c), hex.EncodeToString(sum[:]); got != want {
			t.Errorf("%.40s: %s, want %s", text, got, want)
		}
	}
	if d := ConfigurationDigest(nil); d != "" {
		t.Errorf("of none: %q", d)
	}
}

var long = strings.Repeat("x", 5000)

// TestMarksAreFoundWhereverTheyStand puts marks into texts that have nearly the
// same in them, at even and odd places and at both ends.
func TestMarksAreFoundWhereverTheyStand(t *testing.T) {
	t.Parallel()
	plain := func(b []byte) bool {
		lower := strings.ToLower(string(b))
		for _, mark := range append([]string{`\u`}, secretMarks...) {
			if strings.Contains(lower, mark) {
				return true
			}
		}
		return false
	}
	parts := append([]string{"pas", "se", "cre", "toke", "priv", "ap", "ps", "ey", "acc", "\\", "u", "x", " ", `"`, "PA", "I", "K"}, secretMarks...)
	found := 0
	for range 20_000 {
		var b []byte
		for range 1 + rand.IntN(5) {
			part := parts[rand.IntN(len(parts))]
			if rand.IntN(3) == 0 {
				part = strings.ToUpper(part)
			}
			b = append(b, part[:rand.IntN(len(part)+1)]...)
		}
		want := plain(b)
		if got := marked(b); got != want && !strings.Contains(strings.ToLower(string(b)), `\u`) {
			t.Fatalf("%q: marked %v, want %v", b, got, want)
		}
		if want {
			found++
		}
	}
	if found < 1000 || found > 19_000 {
		t.Errorf("%d of 20000 texts have a mark", found)
	}
	if !marked([]byte(`{"a":"pass\u0077ord"}`)) {
		t.Error("an escape is not found")
	}
}
