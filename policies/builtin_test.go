package policies_test

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/policies"
)

// TestBuiltin tries the policies that init writes.
func TestBuiltin(t *testing.T) {
	t.Parallel()
	for open, want := range map[bool][]string{
		false: {"default.rego", "default_test.rego"},
		true:  {"open.rego", "open_test.rego"},
	} {
		dir := t.TempDir()
		for name, content := range policies.Builtin(open) {
			write(t, filepath.Join(dir, name), content)
		}
		if names := slices.Sorted(maps.Keys(policies.Builtin(open))); !slices.Equal(names, want) {
			t.Errorf("files %q, want %q", names, want)
		}
		if results, _, err := policies.Test(t.Context(), policies.Config{Paths: []string{dir}}); err != nil || len(results) < 5 {
			t.Errorf("%d tests of %s, %v, want at least 5", len(results), want[0], err)
		}
	}
}

func TestBuiltinDecisions(t *testing.T) {
	t.Parallel()
	type verdicts struct{ closed, open policies.Verdict }
	tests := map[string]struct {
		edit func(*policies.Input)
		want verdicts
	}{
		"stranger": {func(*policies.Input) {}, verdicts{policies.VerdictApproval, policies.VerdictAllow}},
		"on the allow-list": {func(in *policies.Input) { in.Allow = &policies.AllowEntry{Pattern: "web*.example.net"} },
			verdicts{policies.VerdictAllow, policies.VerdictAllow}},
		"without a token": {func(in *policies.Input) { in.Proof = policies.ProofNone },
			verdicts{policies.VerdictApproval, policies.VerdictApproval}},
		"on the allow-list, without a token": {func(in *policies.Input) {
			in.Proof, in.Allow = policies.ProofNone, &policies.AllowEntry{Pattern: "web*.example.net"}
		}, verdicts{policies.VerdictAllow, policies.VerdictAllow}},
		"granted, without a token": {func(in *policies.Input) {
			in.Proof, in.Node.Reason = policies.ProofNone, "grant"
		}, verdicts{policies.VerdictAllow, policies.VerdictAllow}},
		"token for names": {func(in *policies.Input) { in.Token.Identities = []string{"web*.example.net"} },
			verdicts{policies.VerdictAllow, policies.VerdictAllow}},
		"token for every name": {func(in *policies.Input) { in.Token.Identities = []string{"*"} },
			verdicts{policies.VerdictApproval, policies.VerdictAllow}},
		"same key again": {func(in *policies.Input) { in.Node.Reason = "replay" },
			verdicts{policies.VerdictAllow, policies.VerdictAllow}},
		"own key of before": {func(in *policies.Input) { in.Node.Reason = "continue" },
			verdicts{policies.VerdictAllow, policies.VerdictAllow}},
		"renewing": {func(in *policies.Input) { in.Node.Reason = "renew" },
			verdicts{policies.VerdictAllow, policies.VerdictAllow}},
		"granted": {func(in *policies.Input) { in.Node.Reason = "grant" },
			verdicts{policies.VerdictAllow, policies.VerdictAllow}},
		"retired": {func(in *policies.Input) { in.Node.State = "retired" },
			verdicts{policies.VerdictApproval, policies.VerdictAllow}},
		"unknown reason": {func(in *policies.Input) { in.Node.Reason = "vouched" },
			verdicts{policies.VerdictApproval, policies.VerdictApproval}},
		"no reason": {func(in *policies.Input) { in.Node.Reason = "" },
			verdicts{policies.VerdictApproval, policies.VerdictApproval}},
		"facts ask nicely": {func(in *policies.Input) { in.Facts = []byte(`{"allow":true}`) },
			verdicts{policies.VerdictApproval, policies.VerdictAllow}},
		"another DNS name": {func(in *policies.Input) { in.CSR.DNSNames = append(in.CSR.DNSNames, "x.example.net") },
			verdicts{policies.VerdictDeny, policies.VerdictDeny}},
		"IP address": {func(in *policies.Input) { in.CSR.IPAddresses = []string{"192.0.2.1"} },
			verdicts{policies.VerdictDeny, policies.VerdictDeny}},
		"URI": {func(in *policies.Input) { in.CSR.URIs = []string{"spiffe://x/operator/y"} },
			verdicts{policies.VerdictDeny, policies.VerdictDeny}},
		"e-mail address": {func(in *policies.Input) { in.CSR.Emails = []string{"a@example.net"} },
			verdicts{policies.VerdictDeny, policies.VerdictDeny}},
		"another name in CN": {func(in *policies.Input) { in.CSR.CommonName = "x.example.net" },
			verdicts{policies.VerdictDeny, policies.VerdictDeny}},
		"known, with an IP address": {func(
			in *policies.Input) {
			in.Node.Reason = "replay"
			in.CSR.IPAddresses = []string{"192.0.2.1"}
		},
			verdicts{policies.VerdictDeny, policies.VerdictDeny}},
		"no names at all": {func(in *policies.Input) { in.CSR = policies.CSR{} },
			verdicts{policies.VerdictApproval, policies.VerdictAllow}},
	}
	closed, err := policies.Load(policies.Config{Paths: builtin()})
	if err != nil {
		t.Fatal(err)
	}
	open, err := policies.Load(policies.Config{Paths: []string{"builtin/open.rego"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := stranger()
			tt.edit(in)
			a, err := closed.Decide(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			b, err := open.Decide(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if got := (verdicts{a.Verdict(), b.Verdict()}); got != tt.want {
				t.Errorf("verdicts = %+v (%q, %q), want %+v", got, a.Why(), b.Why(), tt.want)
			}
			for _, d := range []*policies.Decision{a, b} {
				if d.Certificate.TTL != 0 || d.Configuration != nil {
					t.Errorf("certificate %+v, configuration %v, want neither", d.Certificate, d.Configuration)
				}
				if v := d.Verdict(); v != policies.VerdictAllow && len(d.Why()) == 0 {
					t.Errorf("verdict %s without a reason", v)
				}
			}
		})
	}
}

// Examples are copied, so each must pass its tests unchanged.
func TestExamples(t *testing.T) {
	t.Parallel()
	const base = "../examples/policies"
	alone := []string{"approval", "site-and-role"} // define allow themselves
	files, err := filepath.Glob(base + "/*/policy.rego")
	if err != nil || len(files) < 5 {
		t.Fatalf("examples: %q, %v, want at least 5", files, err)
	}
	for _, f := range append(files, "../examples/service-certificates/policy/certificate.rego") {
		name := filepath.Base(filepath.Dir(f))
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			paths := []string{filepath.Dir(f)}
			if !slices.Contains(alone, name) {
				paths = append(paths, builtin()...)
			}
			if _, err := policies.Load(policies.Config{Paths: paths}); err != nil {
				t.Fatal(err)
			}
			results, _, err := policies.Test(t.Context(), policies.Config{Paths: paths})
			if err != nil {
				t.Fatal(err)
			}
			own := slices.DeleteFunc(results,
				func(r policies.TestResult) bool { return strings.HasPrefix(r.File, "builtin/") })
			if len(own) < 3 {
				t.Errorf("%d tests, want at least 3", len(own))
			}
		})
	}
}

// Examples that are for use beside another are, all together.
func TestExamplesCombined(t *testing.T) {
	t.Parallel()
	e, err := policies.Load(policies.Config{Paths: append(builtin(),
		"../examples/policies/deny-names/policy.rego",
		"../examples/policies/per-environment/policy.rego",
		"../examples/policies/freeze/policy.rego",
		"../examples/policies/freeze/data.json",
	)})
	if err != nil {
		t.Fatal(err)
	}
	good := func() *policies.Input {
		in := stranger()
		in.Token.Org, in.Token.Extensions = "example-production", []byte(`{"environment":"production"}`)
		in.Allow = &policies.AllowEntry{Pattern: "web*.example.net"}
		in.Provisioner.Site = "ams"
		return in
	}
	tests := map[string]struct {
		edit func(*policies.Input)
		want policies.Verdict
	}{
		"good": {func(*policies.Input) {}, policies.VerdictAllow},
		"a name of Choria's": {func(in *policies.Input) { in.Identity, in.CSR = "bob.mcollective", policies.CSR{} },
			policies.VerdictDeny},
		"no environment":  {func(in *policies.Input) { in.Token.Extensions = nil }, policies.VerdictDeny},
		"another's token": {func(in *policies.Input) { in.Token.Org = "example-development" }, policies.VerdictDeny},
		"frozen": {func(in *policies.Input) { in.Time = time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC) },
			policies.VerdictDefer},
		"frozen, on record": {func(in *policies.Input) {
			in.Time, in.Node.Reason = time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC), "replay"
		}, policies.VerdictAllow},
		"not expected": {func(in *policies.Input) { in.Allow = nil }, policies.VerdictApproval},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := good()
			tt.edit(in)
			d, err := e.Decide(t.Context(), in)
			if err != nil {
				t.Fatal(err)
			}
			if d.Verdict() != tt.want {
				t.Errorf("verdict = %s %q, want %s", d.Verdict(), d.Why(), tt.want)
			}
		})
	}
}
