package daemon_test

import (
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// helperFleet returns the options of a fleet whose configurations a shell script makes; $1 is a directory of its own.
func helperFleet(t *testing.T, script string, timeout time.Duration) (testbed.Options, string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "helper.sh")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return testbed.Options{Edit: func(c *daemon.Config) {
		c.Configuration.Template, c.Configuration.Timeout = "", conffile.Span(timeout)
		c.Configuration.Helper = []string{"/bin/sh", path, dir}
	}}, dir
}

// TestHelperAnswers covers each answer and failure of Choria's contract. Only a configuration leaves a record.
func TestHelperAnswers(t *testing.T) {
	t.Parallel()
	const read = "cat >/dev/null\n"
	tests := map[string]struct {
		script string
		want   wire.Code // "" is enrolled
		cause  string    // part of it
	}{
		"an answer":                  {script: read + `echo '{"configuration":{"role":"web"}}'`},
		"an answer, without reading": {script: `echo '{"configuration":{"role":"web"}}'`},
		"an answer beside defer false": {script: read +
			`echo '{"defer":false,"shutdown":false,"msg":"","configuration":{"role":"web"}}'`},
		"later": {read + `echo '{"defer":true,"msg":"no rack yet"}'`, wire.CodeDeferred,
			"no rack yet"},
		"later, beside an answer": {read + `echo '{"defer":true,"msg":"no rack yet","configuration":{"role":"web"}}'`,
			wire.CodeDeferred, "no rack yet"},
		"later, without a word": {read + `echo '{"defer":true}'`, wire.CodeDeferred, ""},
		"shutdown": {read + `echo '{"shutdown":true,"msg":"scrapped"}'`, wire.CodeShutdown,
			"scrapped"},
		"shutdown and later": {read + `echo '{"shutdown":true,"defer":true,"msg":"scrapped"}'`,
			wire.CodeShutdown, "scrapped"},
		"status 1": {read + `echo '{"configuration":{"role":"web"}}'; exit 1`,
			wire.CodeHelperFailed, ""},
		"status 1, with a reason": {read + `echo "no route to the inventory" >&2; exit 1`,
			wire.CodeHelperFailed, ""},
		"killed":  {read + `kill -9 $$`, wire.CodeHelperFailed, ""},
		"nothing": {read, wire.CodeHelperFailed, ""},
		"garbage": {read + `echo 'Traceback (most recent call last):'`,
			wire.CodeHelperFailed, ""},
		"half an answer": {read + `printf '{"configuration":{"role":'`, wire.CodeHelperFailed, ""},
		"two answers": {read + `echo '{"configuration":{"role":"web"}}{}'`,
			wire.CodeHelperFailed, ""},
		"a misspelled member": {read + `echo '{"defered":true,"configuration":{"role":"web"}}'`,
			wire.CodeHelperFailed, "defered"},
		"a certificate of its own": {read + `echo '{"configuration":{"role":"web"},"certificate":"PEM"}'`,
			wire.CodeHelperFailed, "certificate"},
		"too much": {read +
			`head -c 2000000 /dev/zero | tr '\0' ' '; echo '{"configuration":{"role":"web"}}'`,
			wire.CodeHelperFailed, ""},
		"no configuration":       {read + `echo '{}'`, wire.CodeConfigurationFailed, ""},
		"an empty configuration": {read + `echo '{"configuration":{}}'`, wire.CodeConfigurationFailed, ""},
		"a setting that brings another": {read + `printf %s '{"configuration":{"role":"web\nprovision = true"}}'`,
			wire.CodeConfigurationFailed, "role"},
		"a policy outside its directory": {read +
			`echo '{"configuration":{"role":"web"},"opa_policies":{"../x":"y"}}'`, wire.CodeConfigurationFailed, "../x"},
		"more than a node can be sent": {read +
			`printf '{"configuration":{"role":"'; head -c 300000 /dev/zero | tr '\0' 'x'; echo '"}}'`,
			wire.CodeConfigurationFailed, ""},
		"an answer with policies beside it": {script: read +
			`echo '{"configuration":{"role":"web"},"action_policies":{"rpcutil":"x"},"opa_policies":{"a":"y"}}'`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts, _ := helperFleet(t, tt.script, time.Minute)
			f := testbed.New(t, opts)
			n := f.Node("web1.example.net")
			if tt.want == "" {
				e := f.Enroll(n)
				if len(e.Configuration) != 1 || e.Configuration["role"] != "web" {
					t.Errorf("configuration = %v", e.Configuration)
				}
				if with := strings.Contains(tt.script,
					"action_policies"); with != (e.ActionPolicies["rpcutil"] == "x" && e.OPAPolicies["a"] == "y") {
					t.Errorf("policies = %v, %v", e.ActionPolicies, e.OPAPolicies)
				}
				f.Apply(n, e)
				f.Check()
				return
			}
			if got := f.Refused(n); got != tt.want || !strings.Contains(f.Cause(n.Identity), tt.cause) {
				t.Errorf("refused as %s, want %s with %q", f.Cause(n.Identity), tt.want, tt.cause)
			}
			if r := f.Record(n.Identity); r != nil {
				t.Errorf("record = %+v", r)
			}
			f.Check()
		})
	}
}

func TestAHelperThatTakesTooLong(t *testing.T) {
	t.Parallel()
	opts, _ := helperFleet(t, "while :; do sleep 1; done\n", 200*time.Millisecond)
	f := testbed.New(t, opts)
	n := f.Node("web1.example.net")
	start := time.Now()
	if got := f.Refused(n); got != wire.CodeHelperTimeout {
		t.Errorf("refused as %s, want %s", f.Cause(n.Identity), wire.CodeHelperTimeout)
	}
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("took %v, and the default is 10s", took)
	}
	if r := f.Record(n.Identity); r != nil {
		t.Errorf("record = %+v", r)
	}
	f.Check()
}

func TestANodeComesBackFromAHelperThatDefers(t *testing.T) {
	t.Parallel()
	opts, dir := helperFleet(t, `cat >/dev/null
if [ -e "$1/rack" ]; then echo '{"configuration":{"role":"web"}}'; else echo '{"defer":true,"msg":"no rack yet"}'; fi
`, time.Minute)
	f := testbed.New(t, opts)
	n := f.Node("web1.example.net")
	for range 3 {
		if got := f.Refused(n); got != wire.CodeDeferred {
			t.Fatalf("refused as %s, want %s", got, wire.CodeDeferred)
		}
	}
	f.Eventually("operators see the helper's words", func() bool {
		keys, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "web1.example.net")
		return err == nil && len(keys) == 1 && strings.Contains(strings.Join(keys[0].Reasons, ""), "no rack yet")
	})
	if err := os.WriteFile(filepath.Join(dir, "rack"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.Apply(n, f.Enroll(n))
	if r := f.Record(n.Identity); r.State != provisioner.StateProvisioned {
		t.Errorf("record = %+v", r)
	}
	f.Check()
}

func TestThePolicyDecidesBeforeTheHelperRuns(t *testing.T) {
	t.Parallel()
	opts, dir := helperFleet(t, `cat >"$1/ran"; echo '{"configuration":{"role":"helped"}}'`, time.Minute)
	opts.Policy = `package muster.enroll

default allow := false

allow if input.facts.role

deny contains "no databases" if input.facts.role == "db"

configuration := {"role": "policy"} if input.facts.role == "web"
`
	f := testbed.New(t, opts)
	n := f.Node("web1.example.net")
	for role, want := range map[string]wire.Code{"db": wire.CodeDenied, "": wire.CodeDenied} {
		n.Facts = nil
		if role != "" {
			n.Facts = testbed.Facts(t, map[string]string{"role": role})
		}
		if got := f.Refused(n); got != want {
			t.Errorf("role %q is refused as %s, want %s", role, got, want)
		}
	}
	n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	if e := f.Enroll(n); e.Configuration["role"] != "policy" {
		t.Errorf("configuration = %v, want the policy's", e.Configuration)
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("the helper was run")
	}
	n.Facts = testbed.Facts(t, map[string]string{"role": "other"})
	if e := f.Enroll(n); e.Configuration["role"] != "helped" {
		t.Errorf("configuration = %v, want the helper's", e.Configuration)
	}
	f.Check()
}

func TestHelperInputHasNoSecrets(t *testing.T) {
	t.Parallel()
	opts, dir := helperFleet(t, `cat >"$1/input"; echo '{"configuration":{"role":"web"}}'`, time.Minute)
	f := testbed.New(t, opts)
	n, err := simnode.New("web1.example.net", f.Token(func(c *jwt.Claims) {
		c.Username, c.Password, c.Organization = "choria", "hush-this-is-a-password", "acme"
	}))
	if err != nil {
		t.Fatal(err)
	}
	n.Facts = testbed.Facts(t, map[string]string{"role": "web"})
	f.Enroll(n)
	b, err := os.ReadFile(filepath.Join(dir, "input"))
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Identity string `json:"identity"`
		CSR      struct {
			CSR       string `json:"csr"`
			PublicKey string `json:"public_key"`
		} `json:"csr"`
		Inventory string         `json:"inventory"`
		JWT       map[string]any `json:"jwt"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(in.CSR.CSR))
	if in.Identity != n.Identity || block == nil || string(block.Bytes) != string(n.CSR) ||
		!strings.Contains(in.CSR.PublicKey, "BEGIN PUBLIC KEY") {
		t.Errorf("identity %q, certificate request %q, key %q", in.Identity, in.CSR.CSR, in.CSR.PublicKey)
	}
	if !strings.Contains(in.Inventory, `"role":"web"`) {
		t.Errorf("inventory = %s", in.Inventory)
	}
	if in.JWT["chu"] != f.URL() || in.JWT["ou"] != "acme" || in.JWT["chusr"] != "choria" ||
		in.JWT["purpose"] != jwt.Purpose || in.JWT["exp"] == nil {
		t.Errorf("claims = %v", in.JWT)
	}
	for _, secret := range []string{testbed.Secret, "hush-this-is-a-password", n.Token} {
		if strings.Contains(string(b), secret) {
			t.Errorf("the helper is told %q", secret)
		}
	}
	f.Check()
}
