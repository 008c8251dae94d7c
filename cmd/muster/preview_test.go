package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner/events"
)

// refusedDecisions are decisions that enrollment refuses although the policy allows them, by the first label of the
// node's name: in Rego, and what is said about each.
var refusedDecisions = map[string]struct{ configuration, certificate, says string }{
	"break":     {`{"motd": "a\nb"}`, `{}`, "its value has a line break"},
	"nul":       {`{"motd": "\u0000"}`, `{}`, "a control character"},
	"ends":      {`{"motd": "x "}`, `{}`, "a blank at its end"},
	"equals":    {`{"a=b": "x"}`, `{}`, `setting "a=b": want`},
	"hash":      {`{"#a": "x"}`, `{}`, `setting "#a": want`},
	"blank":     {`{"a b": "x"}`, `{}`, `setting "a b": want`},
	"nameless":  {`{"": "x"}`, `{}`, `setting "": want`},
	"empty":     {`{}`, `{}`, "no configuration: a node needs at least one setting"},
	"another":   {`{"identity": "other.example.net"}`, `{}`, `identity is "other.example.net", want`},
	"no-name":   {`{"identity": "WEB 1"}`, `{}`, "identity: not a valid identity"},
	"level":     {`{"log_level": "loud"}`, `{}`, `log_level: is "loud", want debug, info, warn or error`},
	"choria":    {`{"loglevel": "loud"}`, `{}`, `loglevel: is "loud"`},
	"again":     {`{"provision": "true"}`, `{}`, "the node would enroll again forever"},
	"capital":   {`{"Provision": "yes"}`, `{}`, "the node would enroll again forever"},
	"maybe":     {`{"provision": "maybe"}`, `{}`, `provision: is "maybe", want true or false`},
	"alive":     {`{"alive_interval": "9000d"}`, `{}`, "alive_interval: is 216000h0m0s, want"},
	"often":     {`{"registerinterval": "often"}`, `{}`, "registerinterval: is"},
	"broker":    {`{"brokers": "a b:x"}`, `{}`, `brokers: broker URL "a b:x"`},
	"both":      {`{"brokers": "a:4222", "srv_domain": "b.c"}`, `{}`, "brokers and srv_domain are both set"},
	"domain":    {`{"srv_domain": "a b"}`, `{}`, "a b"},
	"wildcard":  {`{"motd": "x"}`, `{"dns_names": ["*.example.net"]}`, `dns_names: not a valid identity: "*.example.net"`},
	"localhost": {`{"motd": "x"}`, `{"dns_names": ["localhost"], "server_auth": true}`, "dns_names: "},
	"broker-a":  {`{"motd": "x"}`, `{"dns_names": ["broker.fleet.test"]}`, "broker.fleet.test is a name"},
	"loopback":  {`{"motd": "x"}`, `{"ip_addresses": ["127.0.0.1"]}`, "ip_addresses: "},
	"long":      {`{"motd": "x"}`, `{"ttl": "90y"}`, "lifetime 788400h0m0s, want"},
	"short":     {`{"motd": "x"}`, `{"ttl": "2s"}`, "lifetime 2s, want"},
	"too-many":  {`{"motd": "x"}`, `{"dns_names": [sprintf("a%d.example.net", [i]) | some i in numbers.range(1, 40)]}`, "40"},
	"many-keys": {`{sprintf("a%d", [i]): "x" | some i in numbers.range(1, 5000)}`, `{}`, "5000 entries in all, limit 4096"},
}

// refusingPolicy decides as refusedDecisions says.
func refusingPolicy() string {
	var b strings.Builder
	b.WriteString("package muster.enroll\n\ndefault allow := true\n\nlabel := split(input.identity, \".\")[0]\n")
	for label, c := range refusedDecisions {
		fmt.Fprintf(&b, "\nconfiguration := %s if label == %q\n\ncertificate := %s if label == %q\n",
			c.configuration, label, c.certificate, label)
	}
	return b.String()
}

// TestPreviewsFindWhatEnrollmentRefuses asks enrollment and every preview about each of refusedDecisions.
func TestPreviewsFindWhatEnrollmentRefuses(t *testing.T) {
	t.Parallel()
	labels := func(t *testing.T, each func(t *testing.T, node, says string)) {
		for label, c := range refusedDecisions {
			t.Run(label, func(t *testing.T) { t.Parallel(); each(t, label+".example.net", c.says) })
		}
	}
	f := testbed.New(t, testbed.Options{Policy: refusingPolicy(), Edit: testbed.Quotas(0, 0)})
	policy, config := filepath.Join(f.Dir, "policy"), filepath.Join(f.Dir, "provisioner.yaml")
	for label, c := range refusedDecisions {
		node := f.Node(label + ".example.net")
		code := f.Refused(node)
		if cause := f.Cause(node.Identity); code != wire.CodeConfigurationFailed && code != wire.CodeCertificateFailed ||
			!strings.Contains(cause, c.says) {
			t.Errorf("enrollment of %s: %s, want %q", label, cause, c.says)
		}
	}

	var report policies.ReplayReport
	f.Eventually("all decisions are recorded", func() bool {
		out, _ := command(t, "policy", "replay", policy, "--config", config, "-o", "json").Output()
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatalf("replay: %v: %s", err, out)
		}
		return report.Nodes == len(refusedDecisions)
	})
	for label, c := range refusedDecisions {
		found := func(n *policies.NodeReplay) bool {
			return n.Node == label+".example.net" && n.From == policies.VerdictAllow && n.To == policies.VerdictFailed &&
				strings.Contains(strings.Join(n.Reasons, " "), c.says)
		}
		if !slices.ContainsFunc(report.Differences, found) {
			t.Errorf("replay says nothing of %s: %q", label, c.says)
		}
	}

	shadowed := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) {
		testbed.Quotas(0, 0)(c)
		c.ShadowPolicy = policy
	}})
	for label, c := range refusedDecisions {
		node := shadowed.Node(label + ".example.net")
		shadowed.Enroll(node)
		shadowed.Eventually("the shadow policy differs about "+label, func() bool {
			return slices.ContainsFunc(shadowed.Events(), func(e events.Event) bool {
				return e.Type == events.ShadowDiffers && e.Node == node.Identity &&
					strings.HasPrefix(e.Cause, "allow would be failed: ") && strings.Contains(e.Cause, c.says)
			})
		})
	}

	t.Run("eval", func(t *testing.T) {
		labels(t, func(t *testing.T, node, says string) {
			input := filepath.Join(t.TempDir(), "input.json")
			write(t, input, `{"identity": "`+node+`"}`)
			of := []string{"--input", input}
			if len(node)%2 == 0 {
				of = []string{"--node", node}
			}
			cmd := command(t, append([]string{"policy", "eval", policy, "--config", config}, of...)...)
			out, _ := cmd.CombinedOutput()
			if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "Verdict: failed\n") ||
				!strings.Contains(string(out), says) {
				t.Errorf("eval %v: %v: %s, want %q", of, cmd.ProcessState, out, says)
			}
		})
	})
	preview, err := daemon.LoadPreview(config, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("load", func(t *testing.T) { // as at the start, at a reload, and in test, eval and replay
		labels(t, func(t *testing.T, node, says string) {
			c := refusedDecisions[strings.TrimSuffix(node, ".example.net")]
			dir := t.TempDir()
			write(t, filepath.Join(dir, "p.rego"), "package muster.enroll\n\ndefault allow := false\n\nconfiguration := "+
				c.configuration+"\n\ncertificate := "+c.certificate+"\n")
			e, err := policies.Load(policies.Config{Paths: []string{dir}, Follow: preview.Follow})
			if err != nil || !strings.Contains(strings.Join(e.Warnings(), "\n"), says) {
				t.Errorf("Load: %v: %q, want %q", err, e.Warnings(), says)
			}
		})
	})
}

// TestPreviewsJudgeNames has the names that enrollment refuses because of the installation: reserved identities, and
// identities of other nodes.
func TestPreviewsJudgeNames(t *testing.T) {
	t.Parallel()
	const policy = "package muster.enroll\n\ndefault allow := true\n\nconfiguration := {\"motd\": \"x\"}\n\n" +
		"certificate := {\"dns_names\": [\"WEB1.example.net\"]} if input.identity == \"web2.example.net\"\n"
	const says = "web1.example.net is the identity of another node"
	f := testbed.New(t, testbed.Options{Policy: policy})
	shadowed := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) { c.ShadowPolicy = filepath.Join(f.Dir, "policy") }})
	f.Enroll(f.Node("web1.example.net"))
	shadowed.Enroll(shadowed.Node("web1.example.net"))
	if f.Refused(f.Node("web2.example.net")) != wire.CodeCertificateFailed {
		t.Errorf("enrolled with the name of another node: %s", f.Cause("web2.example.net"))
	}
	shadowed.Enroll(shadowed.Node("web2.example.net"))
	shadowed.Eventually("the shadow policy differs", func() bool {
		return slices.ContainsFunc(shadowed.Events(), func(e events.Event) bool {
			return e.Type == events.ShadowDiffers && strings.Contains(e.Cause, says)
		})
	})
	evals := func(says string, of ...string) bool {
		out, _ := command(t, append([]string{"policy", "eval", filepath.Join(f.Dir, "policy"), "--config",
			filepath.Join(f.Dir, "provisioner.yaml")}, of...)...).CombinedOutput()
		return strings.Contains(string(out), says)
	}
	f.Eventually("eval knows the other node", func() bool { return evals(says, "--node", "web2.example.net") })
	for input, says := range map[string]string{
		`{"identity": "localhost"}`:                                             "identity_reserved",
		`{"identity": "broker.fleet.test"}`:                                     "identity_reserved: broker.fleet.test is a name",
		`{"identity": "x.example.net", "token": {"urls": ["x.example.net:1"]}}`: "identity_reserved",
		`{"identity": "broker.fleet.test", "node": {"reason": "renew"}}`:        "Verdict: allow",
		`{"identity": "x.example.net"}`:                                         "Verdict: allow",
	} {
		f.Write("input.json", input)
		if !evals(says, "--input", filepath.Join(f.Dir, "input.json")) {
			t.Errorf("eval of %s does not say %q", input, says)
		}
	}
}

// TestEachVerbSaysTheSameOfAPolicy has the findings that need no request: a misspelled rule, a file that is not read, a
// configuration that no node can use; and what the policy prints.
func TestEachVerbSaysTheSameOfAPolicy(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	config := filepath.Join(f.Dir, "provisioner.yaml")
	policy := filepath.Join(f.Dir, "policy")
	f.Write("policy/open.rego", "package muster.enroll\n\ndefault allow := true\n\nallow if print(\"printed\")\n\n"+
		"denied contains \"x\" if input.facts.bad\n\nconfiguration := {\"log_level\": \"loud\"}\n")
	f.Write("policy/open_test.rego", "package muster.enroll_test\n\nimport data.muster.enroll\n\ntest_open if enroll.allow\n")
	f.Write("policy/banned.json", "{}")
	input := filepath.Join(f.Dir, "input.json")
	f.Write("input.json", `{"identity": "web1.example.net"}`)
	for _, verb := range [][]string{
		{"policy", "test", policy},
		{"policy", "eval", policy, "--input", input},
		{"policy", "replay", policy},
		{"policy", "reload"},
		{"provisioner", "run", "--validate"},
	} {
		cmd := command(t, append(verb, "--config", config)...)
		out, _ := cmd.CombinedOutput()
		for _, says := range []string{"muster.enroll.denied is used by no rule", "banned.json is not read",
			"log_level: is", "loud"} {
			if !strings.Contains(string(out), says) {
				t.Errorf("%v does not say %q: %s", verb, says, out)
			}
		}
		prints := slices.Contains(verb, "test") || slices.Contains(verb, "eval")
		if prints && !strings.Contains(string(out), "printed") {
			t.Errorf("%v does not show what the policy prints: %s", verb, out)
		}
	}
	f.Refused(f.Node("web1.example.net"))
	if !strings.Contains(f.Log(), "printed") {
		t.Error("the log at level debug has nothing of what the policy prints")
	}
}

// TestEvalFollowsTemplateAndHelper makes configurations as the provisioner does, and finds the same.
func TestEvalFollowsTemplateAndHelper(t *testing.T) {
	t.Parallel()
	helper := filepath.Join(t.TempDir(), "helper.sh")
	if err := os.WriteFile(helper, []byte("#!/bin/sh\ngrep -q 'BEGIN CERTIFICATE REQUEST' || exit 1\n"+
		`echo '{"configuration":{"log_level":"loud"}}'`), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, options := range map[string]testbed.Options{
		"template": {Template: "log_level = {{ .Facts.level }}\n"},
		"helper": {Edit: func(c *daemon.Config) {
			c.Configuration.Template, c.Configuration.Helper = "", []string{helper}
		}},
		"neither": {Edit: func(c *daemon.Config) { c.Configuration.Template = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, options)
			node := f.Node("web1.example.net")
			node.Facts = testbed.Facts(t, map[string]string{"level": "loud"})
			if f.Refused(node) != wire.CodeConfigurationFailed {
				t.Errorf("enrolled with %s", f.Cause(node.Identity))
			}
			_, says, _ := strings.Cut(f.Cause(node.Identity), ": ")
			config := filepath.Join(f.Dir, "provisioner.yaml")
			if edit := options.Edit; edit != nil { // the testbed changes the configuration in memory only
				changed := daemon.DefaultConfig()
				edit(&changed)
				text := strings.Replace(f.Read("provisioner.yaml"), "template: server.conf", "helper: [\""+helper+"\"]", 1)
				if len(changed.Configuration.Helper) == 0 {
					text = strings.Replace(text, "helper: [\""+helper+"\"]", "timeout: 10s", 1)
				}
				f.Write("provisioner.yaml", text)
			}
			f.Write("input.json", `{"identity": "web1.example.net", "facts": {"level": "loud"}}`)
			out, err := command(t, "policy", "eval", filepath.Join(f.Dir, "policy"), "--config", config,
				"--input", filepath.Join(f.Dir, "input.json")).CombinedOutput()
			if err == nil || !strings.Contains(string(out), says) {
				t.Errorf("eval: %v: %s, want %q", err, out, says)
			}
		})
	}
}
