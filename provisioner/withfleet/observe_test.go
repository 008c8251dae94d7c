package provisioner_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
)

// TestDecisionsAreObserved: every decision is recorded with its input, refusals too, and nothing else.
func TestDecisionsAreObserved(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Policy: `package muster.enroll

default allow := false

allow if input.identity == "in.example.net"

deny contains "not you" if input.identity == "denied.example.net"

defer if input.identity == "later.example.net"

approval if input.identity == "waits.example.net"

allow if {
	input.identity == "broken.example.net"
	to_number("x") == 1
}

configuration := {"a": "b"}
`})
	f.Enroll(f.Node("in.example.net"))
	want := map[string]policies.Verdict{"in.example.net": policies.VerdictAllow}
	for name, expect := range map[string]struct {
		code    wire.Code
		verdict policies.Verdict
	}{
		"denied.example.net": {wire.CodeDenied, policies.VerdictDeny},
		"later.example.net":  {wire.CodeDeferred, policies.VerdictDefer},
		"waits.example.net":  {wire.CodeApprovalPending, policies.VerdictApproval},
		"broken.example.net": {wire.CodePolicyFailed, policies.VerdictFailed},
	} {
		want[name] = expect.verdict
		if code := f.Refused(f.Node(name)); code != expect.code {
			t.Errorf("%s: %s, want %s", name, code, expect.code)
		}
	}
	got := map[string]policies.Verdict{}
	f.Eventually("all decisions are recorded", func() bool {
		var b bytes.Buffer
		if err := f.Daemon().Inputs(f.Context(), time.Hour, func(uint64) {}, &b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			var r policies.Recording
			if line != "\n" && json.Unmarshal([]byte(line), &r) == nil && r.Input.CSR.Key.Hash != "" {
				got[r.Input.Identity] = r.Verdict
			}
		}
		return len(got) >= len(want)
	})
	for name, verdict := range want {
		if got[name] != verdict {
			t.Errorf("%s: recorded %q, want %q", name, got[name], verdict)
		}
	}
}

// TestReloadRefuses: a policy that fails its tests is not loaded by an operator's order either, and raises an alarm
// until it is mended.
func TestReloadRefuses(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	process := f.Daemon().Orders().Process
	before := process.Policy().Digest
	f.Write("policy/more_test.rego", "package muster.enroll_test\n\ntest_wrong if 1 == 2\n")
	if in, err := process.ReloadPolicy(f.Context(), trust.Cause{By: "kim", Why: "try"}); !errors.Is(err,
		policies.ErrInvalid) || in != nil {
		t.Fatalf("ReloadPolicy = %+v, %v, want %v", in, err, policies.ErrInvalid)
	}
	f.WaitAlarm(events.AlarmPolicyRefused)
	if in := process.Policy(); in.Digest != before || !strings.Contains(in.Refused, "test_wrong") {
		t.Errorf("in use: %+v, want %s still", in, before)
	}
	f.Write("policy/more_test.rego", "package muster.enroll_test\n\ntest_right if true\n")
	if in, err := process.ReloadPolicy(f.Context(), trust.Cause{By: "kim"}); err != nil || in.Refused != "" ||
		in.Before != before {
		t.Errorf("mended: %+v, %v", in, err)
	}
	f.WaitNoAlarm(events.AlarmPolicyRefused)
	for _, want := range []events.Type{events.PolicyRefused, events.PolicyReloaded} {
		if !slices.ContainsFunc(f.Events(), func(e events.Event) bool {
			return e.Type == want && e.By == "kim" && (e.Type == events.PolicyRefused) == strings.Contains(e.Cause,
				"test_wrong")
		}) {
			t.Errorf("no event %s with operator and reason: %+v", want, f.Events())
		}
	}
}

// TestShadowPolicyDecidesNothing: a difference is an event; the node gets the live decision.
func TestShadowPolicyDecidesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "next.rego")
	next := `package muster.enroll

default allow := false

allow if input.identity == "same.example.net"

deny contains "too late" if input.identity == "other.example.net"
`
	if err := os.WriteFile(path, []byte(next), 0o600); err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{
		Policy: "package muster.enroll\n\ndefault allow := true\n\nconfiguration := {\"a\": \"b\"}\n",
		Edit:   func(c *daemon.Config) { c.ShadowPolicy = path },
	})
	f.Enroll(f.Node("other.example.net"))
	f.Enroll(f.Node("same.example.net"))
	causes := func() map[string]string {
		said := map[string]string{}
		for _, e := range f.Events() {
			if e.Type == events.ShadowDiffers {
				said[e.Node] = e.Cause
			}
		}
		return said
	}
	f.Eventually("both differences are reported", func() bool { return len(causes()) == 2 })
	if got := causes(); got["other.example.net"] != "allow would be deny: too late" ||
		got["same.example.net"] != "allow would be allow: another configuration" {
		t.Errorf("events say %v", got)
	}
}
