package httpapi_test

import (
	"fmt"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/provisioner/orders"

	"muster/provisioner/trust"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
	"muster/provisioner/services"
)

// changer is an operator that changes the installation at one provisioner and reads it at another.
type changer struct {
	t     *testing.T
	f     *testbed.Fleet
	anna  *httpapi.Client
	other *httpapi.Client
	done  map[string]bool // patterns of routes
}

// change does what a route is for, why is its pattern, and then waits until the
// other provisioner shows it.
func (c *changer) change(pattern, value string, in map[string]any, shown func() bool) {
	c.t.Helper()
	if in == nil {
		in = make(map[string]any)
	}
	in["why"] = pattern
	method, path, _ := strings.Cut(pattern, " ")
	if before, after, ok := strings.Cut(path, "{"); ok {
		_, after, _ = strings.Cut(after, "}")
		after = strings.TrimPrefix(after, "/{name}")
		path = before + value + after
	}
	if pattern == "POST /v1/backup" {
		body, _, err := c.anna.Backup(c.f.Context(), pattern)
		if err != nil {
			c.t.Fatal(err)
		}
		_ = body.Close()
	} else if err := c.anna.Do(c.f.Context(), method, path, in, nil); err != nil {
		c.t.Fatalf("%s: %v", pattern, err)
	}
	c.done[pattern] = true
	if shown != nil {
		c.f.Eventually("the other provisioner shows "+pattern, shown)
	}
}

// lists is [sees] for a list, which is a member that is named as the path ends.
func lists[A any](c *changer, p string, want func([]A) bool) func() bool {
	return sees(c, p, func(answer map[string][]A) bool { return want(answer[path.Base(p)]) })
}

// sees asks the other provisioner, and reports whether its answer is as wanted.
func sees[A any](c *changer, path string, want func(A) bool) func() bool {
	return func() bool {
		var a A
		return c.other.Do(c.f.Context(), http.MethodGet, path, nil, &a) == nil && want(a)
	}
}

// waits has a machine ask until the other provisioner lists it.
func (c *changer) waits(n func()) {
	n()
	c.f.Eventually("the other provisioner lists who waits",
		sees(c, "/v1/waiting", func(p httpapi.Pending) bool { return len(p.Waiting) == 1 }))
}

// TestEveryChangeIsAnEventAndSeenEverywhere makes each kind of change at one of two provisioners: the other one shows
// it, and the events have operator and reason.
func TestEveryChangeIsAnEventAndSeenEverywhere(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3, DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
	}})
	f.AddProvisioner("second.fleet.test")
	c := &changer{
		t: t, f: f, done: make(map[string]bool), anna: remote(t, f, certified(t, f, "anna", trust.RoleAdmin), ""),
		other: observed(httpapi.NewClient(filepath.Join(f.Dir, "data-second.fleet.test", httpapi.SocketName))),
	}
	const web, node = "web1.example.net", "/v1/nodes/web1.example.net"

	// Signers and operators.
	_, public := newKey(t)
	operators := func(want func([]operate.OperatorInfo) bool) func() bool { return lists(c, "/v1/operators", want) }
	ben := func(removed bool) func() bool {
		return operators(func(all []operate.OperatorInfo) bool {
			return slices.ContainsFunc(all,
				func(o operate.OperatorInfo) bool { return o.Name == "ben" && o.Removed == removed })
		})
	}
	c.change("POST /v1/operators", "", map[string]any{"name": "ben", "role": "viewer", "public": public}, ben(false))
	c.change("POST /v1/operators/{name}/remove", "ben", nil, ben(true))
	var id string // of the signer
	build := func(removed bool) func() bool {
		return lists(c, "/v1/signers", func(all []trust.SignerInfo) bool {
			i := slices.IndexFunc(all, func(s trust.SignerInfo) bool { return s.Name == "build" })
			if i >= 0 {
				id = string(all[i].ID)
			}
			return i >= 0 && all[i].Removed == removed
		})
	}
	c.change("POST /v1/signers", "", map[string]any{"public": public, "name": "build"}, build(false))
	c.change("POST /v1/signers/{id}/remove", id, nil, build(true))

	// Pending nodes.
	n := f.Node(web)
	ask := func() { f.Refused(n) }
	c.waits(ask)
	pending := func(waiting, rejected int) func() bool {
		return sees(c, "/v1/waiting",
			func(p httpapi.Pending) bool { return len(p.Waiting) == waiting && len(p.Rejected) == rejected })
	}
	c.change("POST /v1/nodes/{identity}/approve", web, nil, nil)
	f.Apply(n, f.Enroll(n))
	f.Eventually("nobody waits", pending(0, 0))
	c.waits(func() { f.Refused(f.Node("web2.example.net")) })
	c.change("POST /v1/nodes/{identity}/reject", "web2.example.net", nil, pending(0, 1))
	c.waits(func() { f.Refused(f.Node("web3.example.net")) })
	c.change("POST /v1/nodes/{identity}/forget", "web3.example.net", nil, pending(0, 1))
	allowed := func(want int) func() bool {
		return lists(c, "/v1/allow", func(all []orders.Allowance) bool { return len(all) == want })
	}
	c.change("POST /v1/allow", "", map[string]any{"pattern": "db*.example.net"}, allowed(1))
	agent := f.Agent("db1.example.net", f.Token(nil))
	f.WaitProvisioned(agent)
	c.change("POST /v1/allow/remove", "", map[string]any{"pattern": "db*.example.net"}, allowed(0))
	racks := map[string]any{"source": "racks", "entries": []map[string]any{{"pattern": "db2.example.net"}}}
	c.change("POST /v1/allow/import", "", racks, allowed(1))

	// Service certificates.
	m := f.Node("web4.example.net")
	c.waits(func() { f.Refused(m) })
	c.change("POST /v1/nodes/{identity}/approve", "web4.example.net", nil, nil)
	enrolled := f.Enroll(m)
	f.Apply(m, enrolled)
	const service = "web4.example.net/https"
	served := func(want services.State) func() bool {
		return sees(c, "/v1/certificates/"+service, func(r fleet.CertificateReport) bool { return r.State == want })
	}
	f.AskService(m, enrolled, "https", "www.example.net", nil)
	f.Eventually("it waits", served(services.StateWaiting))
	c.change("POST /v1/certificates/{identity}/{name}/reject", service, nil, sees(c, "/v1/certificates/"+service,
		func(r fleet.CertificateReport) bool { return r.Entry.Waiting.Answer != nil }))
	c.change("POST /v1/certificates/{identity}/{name}/approve", service, nil, sees(c, "/v1/certificates/"+service,
		func(r fleet.CertificateReport) bool { return r.Entry.Waiting.Answer.Verdict == orders.VerdictApprove }))
	f.AskService(m, enrolled, "https", "https.web4.example.net", nil)
	f.Eventually("it is current", served(services.StateCurrent))
	c.change("POST /v1/certificates/{identity}/{name}/revoke", service, nil, served(services.StateRevoked))

	// Nodes.
	state := func(want provisioner.State) func() bool {
		return sees(c, node, func(r fleet.Report) bool { return r.Record.State == want })
	}
	c.change("POST /v1/nodes/{identity}/grant", web, nil,
		sees(c, node, func(r fleet.Report) bool { return r.Grant != nil }))
	c.change("POST /v1/nodes/{identity}/revoke", web, nil, state(provisioner.StateRevoked))
	c.change("POST /v1/nodes/{identity}/retire", web, nil, state(provisioner.StateRetired))
	for _, verb := range []wire.Verb{wire.VerbReconfigure, wire.VerbReprovision, wire.VerbRestart, wire.VerbShutdown} {
		f.Eventually(fmt.Sprintf("the node takes %s", verb), func() bool {
			pattern := "POST /v1/nodes/{identity}/" + string(verb)
			err := c.anna.Do(f.Context(), http.MethodPost, "/v1/nodes/db1.example.net/"+string(verb),
				httpapi.NodeCommand{Why: pattern}, nil)
			c.done[pattern] = err == nil
			return err == nil
		})
	}

	// Tokens.
	once := f.Token(testbed.Limited(1, "web9.example.net"))
	tid := string(f.TokenID(once))
	listed := func(revoked bool) func() bool {
		return lists(c, "/v1/tokens", func(all []operate.TokenSummary) bool {
			return slices.ContainsFunc(all,
				func(t operate.TokenSummary) bool { return string(t.ID) == tid && (t.Revoked != nil) == revoked })
		})
	}
	c.change("POST /v1/tokens/{tid}/revoke", tid, nil, listed(true))

	paused := func(want int) func() bool {
		return sees(c, "/v1/settings", func(s httpapi.Settings) bool { return len(s.Pauses) == want })
	}
	c.change("POST /v1/settings/pause", "", nil, paused(1))
	c.change("POST /v1/settings/resume", "", nil, paused(0))
	c.change("POST /v1/policy/reload", "", nil, nil)
	c.change("POST /v1/clock/accept", "", nil, nil)
	c.change("POST /v1/backup", "", nil, nil)
	f.Eventually("each change is an event", func() bool {
		emitted := f.Events()
		return !slices.ContainsFunc(routes().Routes(), func(pattern string) bool {
			return c.done[pattern] &&
				!slices.ContainsFunc(emitted,
					func(e events.Event) bool { return e.By == "operator:anna" && e.Why == pattern })
		})
	})
	for _, pattern := range routes().Routes() {
		if _, changes := routes().Access(pattern); changes && !c.done[pattern] && elsewhere[pattern] == "" {
			t.Errorf("%s changes something, and was not tried", pattern)
		}
	}
}
