package policies_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"muster/policies"
)

// TestACacheSharesWhatPasses has engines with a cache in common, some with the
// same files and some with others.
func TestACacheSharesWhatPasses(t *testing.T) {
	t.Parallel()
	var cache policies.Cache
	with := func(files fstest.MapFS) (*policies.Engine, error) {
		return policies.Load(policies.Config{Paths: at(t, files), Cache: &cache})
	}
	const tested = "package muster.enroll_test\n\nimport data.muster.enroll\n\ntest_it if enroll.allow == "
	good, err := with(fstest.MapFS{"p.rego": {Data: []byte(allowAll)}, "p_test.rego": {Data: []byte(tested + "true")}})
	if err != nil {
		t.Fatal(err)
	}
	again, err := with(fstest.MapFS{"p.rego": {Data: []byte(allowAll)}, "p_test.rego": {Data: []byte(tested + "true")}})
	if err != nil {
		t.Fatal(err)
	}
	if !policies.SamePolicy(good, again) {
		t.Error("the same files were compiled twice")
	}
	// A change of the tests alone is another policy, and one that fails.
	for range 2 {
		_, err = with(fstest.MapFS{"p.rego": {Data: []byte(allowAll)}, "p_test.rego": {Data: []byte(tested + "false")}})
		if !errors.Is(err, policies.ErrInvalid) || !strings.Contains(err.Error(), "test_it") {
			t.Errorf("a policy whose test fails: %v", err)
		}
	}
	other, err := with(fstest.MapFS{"p.rego": {Data: []byte(strings.Replace(allowAll, "true", "false", 1))}})
	if err != nil {
		t.Fatal(err)
	}
	if other.Digest() == good.Digest() || policies.SamePolicy(good, other) {
		t.Error("another policy is taken for the first")
	}
	for e, want := range map[*policies.Engine]policies.Verdict{good: policies.VerdictAllow, again: policies.VerdictAllow, other: policies.VerdictDeny} {
		d, err := e.Decide(t.Context(), stranger())
		if err != nil || d.Verdict() != want {
			t.Errorf("decision %v, %v; want %v", d, err, want)
		}
	}
	// Each hears of the mistakes in files of its own.
	for range 2 {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "p.rego"), "package muster.enroll\n\nallow := ")
		_, err := policies.Load(policies.Config{Paths: []string{dir}, Cache: &cache})
		if !errors.Is(err, policies.ErrInvalid) || !strings.Contains(err.Error(), dir) {
			t.Errorf("a policy that does not compile in %s: %v", dir, err)
		}
	}
}
