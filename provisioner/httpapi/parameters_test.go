package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// TestAMistypedFilterSelectsNothing gives filters that cannot be parsed, or are repeated: an operator that approves or
// revokes the listed nodes must not get all of them.
func TestAMistypedFilterSelectsNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	for path, says := range map[string]string{
		"/v1/nodes?match=web%zz":                       "invalid URL escape",
		"/v1/nodes?state=revoked;site=ams1":            "semicolon",
		"/v1/nodes?site=ams1&site=fra1":                "site: given 2 times",
		"/v1/waiting?fact=load=50%":                    "a % is written %25",
		"/v1/waiting?token=01234567&token=89abcdef":    "token: given 2 times",
		"/v1/waiting?site=ams1&prefix=web&tpye=x":      `"tpye": no such parameter`,
		"/v1/events?once=true&node=web1.x&node=web2.x": "node: given 2 times",
		"/v1/events?once=true&code=%":                  "invalid URL escape",
		"/v1/inputs?age=1h&age=2h":                     "age: given 2 times",
		"/v1/crl.der?issuer=a&issuer=b":                "issuer: given 2 times",
		"/v1/nodes?sort=size&state=gone&limit=0":       "limit",
		"/v1/nodes?site=&state=provisioned":            "site: is empty: give it a value, or leave it out",
		"/v1/nodes?match=":                             "match: is empty",
		"/v1/waiting?from=&match=":                     "from: is empty",
		"/v1/waiting?match=web*&fact=":                 "fact: is empty",
		"/v1/events?once=true&node=":                   "node: is empty",
		"/v1/events?once=true&type=node.enrolled":      "type: no event type begins with \"node.enrolled\"",
		"/v1/inputs?age=":                              "age: is empty",
		"/v1/crl.der?issuer=":                          "issuer: is empty",
	} {
		if p := refused(t, f, http.MethodGet, path, nil); p.Status != http.StatusBadRequest ||
			!strings.Contains(p.Detail, says) || strings.Contains(p.Detail, "\n") {
			t.Errorf("GET %s: %d %q, want 400 that says %q in one line", path, p.Status, p.Detail, says)
		}
	}
}

// TestGrantNamesTheWaitingKey has two keys wait for a name that a third one has: no order without a key gives it away.
func TestGrantNamesTheWaitingKey(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	const web = "web1.example.net"
	owner, right, thief := f.Node(web), f.Node(web), f.Node(web)
	f.Apply(owner, f.Enroll(owner))
	before := httpapi.NewGrant{ID: "before"}
	call(t, f, http.MethodPost, "/v1/nodes/"+web+"/grant", before, nil) // no key waits
	f.Clock.Advance(2 * time.Hour)                                      // the grant has expired
	f.Refused(right)
	f.Refused(thief)
	f.Eventually("both wait", func() bool {
		var p httpapi.Pending
		call(t, f, http.MethodGet, "/v1/waiting", nil, &p)
		return len(p.Waiting) == 2
	})
	path, key := "/v1/nodes/"+web+"/grant", keyOf(t, right)
	call(t, f, http.MethodPost, path, before, nil) // the repetition of an order is the same grant
	for _, tt := range []struct {
		key    string
		status int
		says   []string
	}{
		{"", http.StatusConflict, []string{
			"key " + key[:16] + " from 127.0.0.1 asked from 20", "key " + keyOf(t, thief)[:16],
			"compare with the key in the log of the right machine", "muster node reject " + web + " --fingerprint",
		}},
		{strings.Repeat("0", 8), http.StatusNotFound, []string{"no key waits for this name with key 00000000"}},
		{"abc", http.StatusBadRequest, []string{"want 8 to 64"}},
	} {
		p := refused(t, f, http.MethodPost, path, httpapi.NewGrant{KeyHash: httpapi.Limit(tt.key)})
		if p.Status != tt.status {
			t.Errorf("key %q: %d, want %d", tt.key, p.Status, tt.status)
		}
		for _, want := range tt.says {
			if !strings.Contains(p.Detail, want) {
				t.Errorf("key %q: %s, want %q", tt.key, p.Detail, want)
			}
		}
	}
	for _, n := range []*simnode.Node{right, thief} {
		if code := f.Refused(n); code != wire.CodeIdentityTaken {
			t.Errorf("a key that was not named gets %q", code)
		}
	}
	call(t, f, http.MethodPost, path, httpapi.NewGrant{KeyHash: httpapi.Limit(key[:12])}, nil)
	if code := f.Refused(thief); code != wire.CodeIdentityTaken {
		t.Errorf("the other key gets %q", code)
	}
	f.Apply(right, f.Enroll(right))
	call(t, f, http.MethodPost, "/v1/nodes/"+web+"/reject", httpapi.NewVerdict{Why: "a thief"}, nil)
	refused(t, f, http.MethodPost, path, httpapi.NewGrant{KeyHash: httpapi.Limit(keyOf(t, thief))})
	f.Check()
}

// TestAnOrderWithAnEmptyKeyIsRefused sends orders about one key from a variable that was not set: no other key must get
// the name.
func TestAnOrderWithAnEmptyKeyIsRefused(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	node := f.Node("web1.example.net")
	f.Apply(node, f.Enroll(node))
	for path, body := range map[string]map[string]any{
		"/v1/nodes/web1.example.net/grant":   {"key_hash": "", "why": "reinstalled"},
		"/v1/nodes/web1.example.net/approve": {"key": ""},
		"/v1/nodes/web1.example.net/reject":  {"key": ""},
	} {
		if p := refused(t, f, http.MethodPost, path, body); p.Status != http.StatusBadRequest ||
			!strings.Contains(p.Detail, "is empty: give it a value, or leave it out") {
			t.Errorf("POST %s %v: %d %q, want 400 that says what is empty", path, body, p.Status, p.Detail)
		}
	}
	if r := f.Record(node.Identity); r.State != provisioner.StateProvisioned {
		t.Errorf("it is %s now", r.State)
	}
	if err := client(f).Do(f.Context(), http.MethodPost, "/v1/nodes/web1.example.net/grant",
		map[string]string{"why": "reinstalled"}, nil); err != nil {
		t.Errorf("a grant for any key: %v", err)
	}
}

// TestAnInvalidOrderIsABadRequest gives orders that are wrong by themselves: the
// answer is not that the provisioner has failed, which scripts take for a reason to try again.
func TestAnInvalidOrderIsABadRequest(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	n := f.Node("web1.example.net")
	f.Apply(n, f.Enroll(n))
	const node, token = "/v1/nodes/web1.example.net/", "/v1/tokens/0123456789abcdef0123456789abcdef/"
	long := strings.Repeat("x", 201)
	for _, order := range []struct {
		path string
		body any
	}{
		{node + "revoke", httpapi.Change{Why: long}},
		{node + "retire", httpapi.Change{Why: long}},
		{node + "grant", httpapi.NewGrant{Why: long}},
		{node + "grant", httpapi.NewGrant{TTL: time.Second}},
		{node + "grant", httpapi.NewGrant{KeyHash: "xyz"}},
		{node + "grant", httpapi.NewGrant{ID: long}},
		{node + "restart", httpapi.NodeCommand{Why: long}},
		{node + "restart", httpapi.NodeCommand{ID: long}},
		{node + "restart", httpapi.NodeCommand{Token: "xyz"}},
		{node + "approve", httpapi.NewVerdict{Why: long}},
		{node + "approve", httpapi.NewVerdict{TTL: time.Second}},
		{node + "approve", httpapi.NewVerdict{Key: "xyz"}},
		{node + "approve", httpapi.NewVerdict{Key: "01234567", Waiting: true}},
		{node + "reject", httpapi.NewVerdict{Key: "xyz"}},
		{node + "forget", httpapi.NewVerdict{Key: "xyz"}},
		{token + "revoke", httpapi.Reason{Why: long}},
		{token + "unfreeze", httpapi.Reason{Why: long}},
		{token + "release", httpapi.Release{Why: long}},
		{"/v1/signers", httpapi.AddSigner{NewSigner: trust.NewSigner{Public: []byte("none")}}},
		{"/v1/signers/xyz/remove", httpapi.Reason{}},
		{"/v1/operators", httpapi.AddOperator{}},
		{"/v1/operators/ANNA/remove", httpapi.Reason{}},
		{"/v1/allow", httpapi.NewAllowance{
			AllowOrder: operate.AllowOrder{Pattern: "web*", Expires: -time.Second},
		}},
		{"/v1/allow/import", httpapi.AllowImport{List: operate.List{
			Source:  "racks",
			Entries: []operate.Listed{{Pattern: "a..b"}},
		}}},
		{"/v1/allow/remove", httpapi.OldAllowance{Pattern: "web*", Why: long}},
		{"/v1/settings/pause", httpapi.NewPause{Site: "NO SITE"}},
		{"/v1/settings/resume", httpapi.Resumption{Why: long}},
		{"/v1/policy/reload", httpapi.Reason{Why: long}},
		{"/v1/clock/accept", httpapi.Reason{Why: long}},
		{"/v1/backup", httpapi.Reason{Why: long}},
	} {
		if p := refused(t, f, http.MethodPost, order.path, order.body); p.Status != http.StatusBadRequest {
			t.Errorf("POST %s %+.80v: %d %q", order.path, order.body, p.Status, p.Detail)
		}
	}
	if got := f.Record("web1.example.net").State; got != provisioner.StateProvisioned {
		t.Errorf("the node is %s", got)
	}
	f.Check()
}
