package policies_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"muster/policies"
)

func TestDecide(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rules string
		want  policies.Decision
		is    policies.Verdict
	}{
		"allowed":     {`allow := true`, policies.Decision{Allow: true}, policies.VerdictAllow},
		"not allowed": {`allow := false`, policies.Decision{}, policies.VerdictDeny},
		"default": {"default allow := false\nallow if input.facts.role == \"db\"", policies.Decision{},
			policies.VerdictDeny},
		"by a fact": {"default allow := false\nallow if input.facts.role == \"web\"", policies.Decision{Allow: true},
			policies.VerdictAllow},
		"denied by a set, sorted": {
			"allow := true\ndeny contains \"b\"\ndeny contains \"a\"",
			policies.Decision{Allow: true, Deny: []string{"a", "b"}}, policies.VerdictDeny,
		},
		"denied by an array, without duplicates": {
			"allow := true\ndeny := [\"b\", \"a\", \"b\"]",
			policies.Decision{Allow: true, Deny: []string{"a", "b"}}, policies.VerdictDeny,
		},
		"nothing to deny": {"allow := true\ndeny contains \"a\" if false", policies.Decision{Allow: true},
			policies.VerdictAllow},
		"deferred": {"allow := true\ndefer := true\nreasons contains \"later\"",
			policies.Decision{Allow: true, Defer: true, Reasons: []string{"later"}}, policies.VerdictDefer},
		"needs approval": {"allow := true\napproval := true", policies.Decision{Allow: true, Approval: true},
			policies.VerdictApproval},
		"shut down": {"allow := true\nshutdown := true", policies.Decision{Allow: true, Shutdown: true},
			policies.VerdictShutdown},
		"certificate": {
			"allow := true\ncertificate := {\"ttl\": \"30d\", \"dns_names\": {\"b\", \"a\"}, \"server_auth\": true}",
			policies.Decision{
				Allow:       true,
				Certificate: policies.Certificate{TTL: 720 * time.Hour, DNSNames: []string{"a", "b"}, ServerAuth: true},
			},
			policies.VerdictAllow,
		},
		"extensions of Puppet": {
			"allow := input.proof == \"token\"\n" +
				"certificate := {\"extensions\": {\"pp_role\": input.csr.extensions.pp_role}}",
			policies.Decision{
				Allow:       true,
				Certificate: policies.Certificate{Extensions: map[string]string{"pp_role": "web"}},
			}, policies.VerdictAllow,
		},
		"configuration": {
			"allow := true\nconfiguration := {\"identity\": input.identity, \"empty\": \"\"}",
			policies.Decision{
				Allow:         true,
				Configuration: map[string]string{"identity": "web1.example.net", "empty": ""},
			}, policies.VerdictAllow,
		},
		"empty configuration is one": {"allow := true\nconfiguration := {}",
			policies.Decision{Allow: true, Configuration: map[string]string{}}, policies.VerdictAllow},
		"members made of parts": {
			"allow := true\ncertificate.ttl := 60\nconfiguration[k] := v if some k, v in {\"role\": \"web\"}",
			policies.Decision{
				Allow:         true,
				Certificate:   policies.Certificate{TTL: time.Minute},
				Configuration: map[string]string{"role": "web"},
			},
			policies.VerdictAllow,
		},
		"helpers of any type": {"allow := helper == 3\nhelper := 3\nf(x) := x\nlist contains {\"x\": 1}",
			policies.Decision{Allow: true}, policies.VerdictAllow},
		"helpers that fail and nobody asks": {"allow := true\nhelper := to_number(input.identity)",
			policies.Decision{Allow: true}, policies.VerdictAllow},
		"the time is the request's": {"allow := time.now_ns() == time.parse_rfc3339_ns(input.time)",
			policies.Decision{Allow: true}, policies.VerdictAllow},
		"no entry of the allow-list": {"allow := input.allow == null", policies.Decision{Allow: true},
			policies.VerdictAllow},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := load(t, tt.rules)
			got, err := e.Decide(t.Context(), stranger())
			if err != nil {
				t.Fatal(err)
			}
			tt.want.Digest = e.Digest()
			if diff := cmp.Diff(&tt.want, got); diff != "" {
				t.Errorf("Decide: -want +got\n%s", diff)
			}
			if got.Verdict() != tt.is {
				t.Errorf("Verdict = %q, want %q", got.Verdict(), tt.is)
			}
		})
	}
}

// Whatever a policy does wrong at the time of a decision, it denies.
func TestDecideFailsClosed(t *testing.T) {
	t.Parallel()
	const slow = `[1 | some a in numbers.range(1, 10000); some b in numbers.range(1, 10000); a * b == 7]`
	tests := map[string]string{
		"allow undefined":          `allow if input.facts.role == "db"`,
		"allow a string":           `allow := input.facts.role`,
		"allow null":               `allow := input.allow`,
		"allow contradicts itself": "allow := true\nallow := false if input.facts.role == \"web\"",
		"deny a string":            "allow := true\ndeny := input.facts.role",
		"deny an object":           "allow := true\ndeny := input.facts",
		"deny holds a number":      "allow := true\ndeny contains 1 if input.facts.role",
		"deny holds null":          "allow := true\ndeny := [null]",
		"deny contradicts itself": "allow := true\ndeny := [\"a\"] if input.facts.role\ndeny := [\"b\"] if " +
			"input.identity",
		"defer a string":                "allow := true\ndefer := input.facts.role",
		"approval a number":             "allow := true\napproval := input.facts.number",
		"shutdown null":                 "allow := true\nshutdown := input.allow",
		"reasons a string":              "allow := true\nreasons := input.facts.role",
		"certificate a string":          "allow := true\ncertificate := input.facts.role",
		"certificate with a stray name": "allow := true\ncertificate := {\"lifetime\": \"720h\"}",
		"lifetime of a day too many":    "allow := true\ncertificate := {\"ttl\": \"36501d\"}",
		"lifetime no duration":          "allow := true\ncertificate := {\"ttl\": \"soon\"}",
		"names of certificate a string": "allow := true\ncertificate := {\"dns_names\": \"a.example.net\"}",
		"extensions of numbers":         "allow := true\ncertificate := {\"extensions\": {\"pp_role\": 1}}",
		"extensions a set":              "allow := true\ncertificate := {\"extensions\": {\"pp_role\"}}",
		"server_auth a string":          "allow := true\ncertificate := {\"server_auth\": \"yes\"}",
		"configuration an array":        "allow := true\nconfiguration := input.facts.list",
		"configuration with a number":   "allow := true\nconfiguration := {\"registerinterval\": 300}",
		"configuration with a boolean":  "allow := true\nconfiguration := {\"provision\": false}",
		"configuration contradicts": "allow := true\nconfiguration.a := \"1\"\nconfiguration.a := \"2\" if " +
			"input.identity",
		"built-in function fails":     `allow := to_number(input.identity) == 1`,
		"failure that not would hide": "default allow := false\nallow if not to_number(input.identity) == 1",
		"failure in a reason to deny": "allow := true\ndeny contains \"old\" if to_number(input.identity) < 3",
		"failure in a helper": "default allow := false\nallow if not bad\nbad if " +
			"time.parse_rfc3339_ns(input.facts.role) > 0",
		"division by zero":       `allow := 1 / count(input.csr.uris) == 1`,
		"takes for ever":         "default allow := false\nallow if count(" + slow + ") > 0",
		"takes for ever to deny": "allow := true\ndeny contains \"slow\" if count(" + slow + ") > 0",
	}
	for name, rules := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := policies.Load(policies.Config{Paths: at(t, module(rules))})
			if err != nil {
				t.Fatal(err)
			}
			d, err := e.Decide(t.Context(), stranger())
			if !errors.Is(err, policies.ErrPolicy) || d != nil {
				t.Fatalf("Decide = %+v, %v, want nil, %v", d, err, policies.ErrPolicy)
			}
		})
	}
}

func TestDecideTimeout(t *testing.T) {
	t.Parallel()
	e, err := policies.Load(policies.Config{Paths: at(t, module(
		`allow if count([1 | some a in numbers.range(1, 20000); some b in numbers.range(1, 20000); a * b == 7]) > 0`))})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	_, err = e.Decide(t.Context(), stranger())
	if !errors.Is(err, policies.ErrPolicy) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Decide error = %v, want %v and %v", err, policies.ErrPolicy, context.DeadlineExceeded)
	}
	if elapsed := time.Since(start); elapsed > 5*time.Second {
		t.Errorf("Decide took %v with a time-out of 1 s", elapsed)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = e.Decide(ctx, stranger()); !errors.Is(err, policies.ErrPolicy) || !errors.Is(err, context.Canceled) {
		t.Errorf("Decide of a done context = %v, want %v and %v", err, policies.ErrPolicy, context.Canceled)
	}
}

func TestDecideInput(t *testing.T) {
	t.Parallel()
	e := load(t, `allow := true`)
	tests := map[string]*policies.Input{
		"nil":            nil,
		"facts an array": {Facts: []byte(`["a"]`)},
		"facts a string": {Facts: []byte(`"a"`)},
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if d, err := e.Decide(t.Context(), in); !errors.Is(err, policies.ErrPolicy) || d != nil {
				t.Errorf("Decide = %+v, %v, want nil, %v", d, err, policies.ErrPolicy)
			}
		})
	}
}

// A policy that could reach out is not even loaded; the server is there to see
// that nothing arrives.
func TestPolicyReachesNothing(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 100) // more than there are cases
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.URL.Path }))
	defer srv.Close()
	tests := map[string]string{
		"http.send":           `allow if http.send({"method": "GET", "url": "` + srv.URL + `"}).status_code == 200`,
		"http.send, negated":  `allow if not http.send({"method": "GET", "url": "` + srv.URL + `"}).status_code == 500`,
		"name look-up":        `allow if net.lookup_ip_addr("localhost")`,
		"environment":         `allow if opa.runtime().env.PATH`,
		"remote schema":       `allow if json.match_schema({}, {"$ref": "` + srv.URL + `"})[0]`,
		"schema from a file":  `allow if json.match_schema({}, {"$ref": "file:///etc/hosts"})[0]`,
		"schema verified":     `allow if json.verify_schema({"$ref": "` + srv.URL + `"})[0]`,
		"parser":              `allow if rego.parse_module("x", "package x")`,
		"trace":               `allow if trace("x")`,
		"random number":       `allow if rand.intn("x", 2) == 1`,
		"random identifier":   `allow if uuid.rfc4122("x") != ""`,
		"signing":             `allow if io.jwt.encode_sign({}, {}, {}) != ""`,
		"signing, raw":        `allow if io.jwt.encode_sign_raw("", "", "") != ""`,
		"signing for a cloud": `allow if providers.aws.sign_req({}, {}, 0)`,
		"passed as a mock":    "allow if f with upper as http.send\nf if upper(\"x\")",
		"annotated schema": "# METADATA\n# schemas:\n#   - input: {\"$ref\": \"" + srv.URL +
			"\"}\nallow if input.identity",
	}
	for name, rules := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, err := policies.Load(policies.Config{Paths: at(t, module(rules))})
			if name == "annotated schema" { // a comment, as far as we go
				if err != nil {
					t.Fatal(err)
				}
				_, _ = e.Decide(t.Context(), stranger())
			} else if !errors.Is(err, policies.ErrInvalid) {
				t.Errorf("Load = %v, want %v", err, policies.ErrInvalid)
			}
			select {
			case path := <-asked:
				t.Errorf("the policy asked for %q", path)
			default:
			}
		})
	}
}

func TestVerdictPrecedence(t *testing.T) {
	t.Parallel()
	all := policies.Decision{
		Allow:    true,
		Approval: true,
		Defer:    true,
		Shutdown: true,
		Deny:     []string{"because"},
		Reasons:  []string{"so"},
	}
	steps := []struct {
		want policies.Verdict
		why  []string
		drop func(*policies.Decision)
	}{
		{policies.VerdictDeny, []string{"because"}, func(d *policies.Decision) { d.Deny = nil }},
		{policies.VerdictShutdown, []string{"so"}, func(d *policies.Decision) { d.Shutdown = false }},
		{policies.VerdictDefer, []string{"so"}, func(d *policies.Decision) { d.Defer = false }},
		{policies.VerdictApproval, []string{"so"}, func(d *policies.Decision) { d.Approval = false }},
		{policies.VerdictAllow, []string{"so"}, func(d *policies.Decision) { d.Allow = false }},
		{policies.VerdictDeny, []string{"no rule allows it"}, nil},
	}
	d := all
	for _, s := range steps {
		if got := d.Verdict(); got != s.want {
			t.Errorf("Verdict of %+v = %q, want %q", d, got, s.want)
		}
		if diff := cmp.Diff(s.why, d.Why()); diff != "" {
			t.Errorf("Why of %+v: -want +got\n%s", d, diff)
		}
		if s.drop != nil {
			s.drop(&d)
		}
	}
}

func TestReasonsAreBounded(t *testing.T) {
	t.Parallel()
	e := load(t, `allow := true
deny contains sprintf("%03d %s", [i, input.facts.long]) if some i in numbers.range(1, 100)`)
	in := stranger()
	in.Facts = []byte(`{"long": "` + strings.Repeat("ü", 5000) + `"}`)
	d, err := e.Decide(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Deny) != policies.MaxReasons || d.Deny[policies.MaxReasons-1] != "and 69 more" {
		t.Errorf("%d reasons, last %.40q, want %d, the last for 69 more", len(d.Deny), d.Deny[len(d.Deny)-1],
			policies.MaxReasons)
	}
	for _, r := range d.Deny {
		if len(r) > policies.MaxReasonBytes || strings.ContainsRune(r, '\uFFFD') {
			t.Errorf("reason of %d bytes %.10q...%q, want at most %d", len(r), r, r[len(r)-8:], policies.MaxReasonBytes)
		}
	}
}

// Decisions side by side do not disturb each other, and each is made by one
// policy from beginning to end while policies are replaced.
func TestDecideConcurrently(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "p.rego")
	version := func(v string) {
		write(t, file, "package muster.enroll\n\ndefault allow := false\n\nallow if input.facts.role == \"web\"\n\n"+
			`configuration := {"identity": input.identity, "version": "`+v+`"}`+"\n\nreasons contains \"version "+v+"\"\n")
	}
	version("0")
	e, err := policies.Load(policies.Config{Paths: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, role := range []string{"web", "db"} {
		for range 2 {
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-done:
						if n > 0 {
							return
						}
					default:
					}
					in := stranger()
					in.Identity, in.Facts = role+".example.net", []byte(`{"role": "`+role+`"}`)
					d, err := e.Decide(t.Context(), in)
					if err != nil || d.Allow != (role == "web") || d.Configuration["identity"] != in.Identity ||
						len(d.Reasons) != 1 || d.Reasons[0] != "version "+d.Configuration["version"] {
						t.Errorf("Decide for %s = %+v, %v", role, d, err)
						return
					}
				}
			})
		}
	}
	for _, v := range []string{"1", "2", "3", "4"} {
		version(v)
		if err := e.Reload(t.Context()); err != nil {
			t.Error(err)
		}
		if d, err := e.Decide(t.Context(), stranger()); err != nil || d.Configuration["version"] != v ||
			d.Digest != e.Digest() {
			t.Errorf("Decide after reload %s = %+v, %v", v, d, err)
		}
	}
	close(done)
	wg.Wait()
}

// The caller's input is not written to, so it can be recorded afterwards.
func TestDecideLeavesInput(t *testing.T) {
	t.Parallel()
	e := load(t, `allow := input.token.identities == []`)
	in := &policies.Input{
		Identity: "web1.example.net",
		Allow:    &policies.AllowEntry{Pattern: "*", ExpiresAt: noon.In(time.FixedZone("x", 3600))},
	}
	before := *in
	if d, err := e.Decide(t.Context(), in); err != nil || !d.Allow {
		t.Fatalf("Decide = %+v, %v", d, err)
	}
	if diff := cmp.Diff(&before, in, cmpopts.EquateComparable()); diff != "" {
		t.Errorf("input changed: -before +after\n%s", diff)
	}
}
