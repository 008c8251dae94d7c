package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

func itoa(n int) string { return strconv.Itoa(n) }

func TestEnrollEndsInNormalMode(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	token := strings.TrimSpace(readFile(t, cfg.TokenFile))
	cfg.FactsFile = filepath.Join(t.TempDir(), "facts.json")
	writeFile(t, cfg.FactsFile, `{ "site": "ams" }`)
	a := f.run(cfg)
	applied := a.await(server.EventApplied, 1)
	confirmed := a.await(server.EventConfirmed, 1)
	connected := a.await(server.EventConnected, 1)
	if confirmed.Serial != applied.Serial || connected.Serial != applied.Serial {
		t.Errorf("applied serial %q, confirmed %q, connected with %q", applied.Serial, confirmed.Serial,
			connected.Serial)
	}
	f.await("provisioned event", func() bool { return len(f.lifecycle("provisioned")) == 1 })
	if err := a.stop(); err != nil {
		t.Errorf("Run = %v", err)
	}

	r, confirm := f.requests()[0], f.confirmations()[0]
	if r.Identity != cfg.Identity || string(r.Token) != token || string(r.Facts) != `{"site":"ams"}` ||
		r.Agent != "muster-server 1.2.3" {
		t.Errorf("request = %+v", r)
	}
	csr, err := ca.ParseCSR(r.CSR)
	if err != nil {
		t.Fatal(err)
	}
	if csr.CommonName != cfg.Identity || !cmp.Equal(csr.DNSNames, []string{cfg.Identity}) || csr.KeyType != "P-256" {
		t.Errorf("certificate request = %+v", csr)
	}
	if err := wire.CheckSignature(csr.PublicKey, wire.AppliedDigest(confirm.Identity, confirm.Serial, confirm.Digest),
		confirm.Signature); err != nil {
		t.Errorf("confirmation: %v", err)
	}

	shows := snapshot(t, cfg)
	if !strings.Contains(shows["CONF"], "\nbrokers = "+f.url()+"\n") {
		t.Errorf("server.conf = %q", shows["CONF"])
	}
	if to, err := os.Readlink(cfg.ConfFile); err != nil || to != "ssl/..data/server.conf" {
		t.Errorf("server.conf links to %q, %v", to, err)
	}
	for name, want := range map[string]os.FileMode{".": os.ModeDir | 0o700, "private.pem": 0o600,
		"certificate.pem": 0o644, "ca.pem": 0o644,
		"..data/server.conf": 0o600, "policies/rpcutil.policy": 0o600, "policies/rego/main.rego": 0o600} {
		fi, err := os.Stat(filepath.Join(cfg.SSLDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if fi.Mode() != want {
			t.Errorf("%s has mode %v, want %v", name, fi.Mode(), want)
		}
	}
	f.checkTidy(t, cfg)
	openssl(t, cfg.SSLDir, "verify", "-CAfile", "ca.pem", "-untrusted", "certificate.pem", "certificate.pem")
	for what, text := range map[string]string{"token": token, "shared secret": secret, "configuration": "generation",
		"key": "PRIVATE KEY"} {
		if strings.Contains(f.log.String(), text) {
			t.Errorf("the log has the %s:\n%s", what, f.log.String())
		}
	}
}

func openssl(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "openssl", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("openssl %v: %v\n%s", args, err, out)
	}
}

// other makes another authority.
func other(t *testing.T) *ca.Authority {
	t.Helper()
	made, err := ca.Generate("other", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	authority, err := ca.New(ca.Config{
		Root:        made.Root,
		Issuing:     made.Issuing,
		Key:         made.IssuingKey,
		TrustDomain: trustDomain,
	})
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func TestRepliesThatDoNotFitAreRefusedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	stranger, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	second := other(t)
	// digest corrects the digest after an edit.
	digest := func(e *wire.Enrolled) { e.Digest = wire.Digest(e.Certificate, e.Files) }
	// edit is applied before the certificate is made, spoil afterwards.
	tests := map[string]struct {
		edit  func(*ca.Request, *wire.Enrolled)
		spoil func(*wire.Enrolled)
	}{
		"another key":  {edit: func(r *ca.Request, _ *wire.Enrolled) { r.PublicKey = stranger.Public() }},
		"another node": {edit: func(r *ca.Request, _ *wire.Enrolled) { r.Name = "web2.example.net" }},
		"another node, our alias": {edit: func(r *ca.Request, _ *wire.Enrolled) {
			r.Name, r.DNSNames = "web2.example.net", []string{"web1.example.net"}
		}},
		"a broker's role": {edit: func(r *ca.Request, _ *wire.Enrolled) {
			r.Role, r.DNSNames = wire.RoleBroker, []string{"web1.example.net"}
		}},
		"an authority that did not sign":  {spoil: func(e *wire.Enrolled) { e.CA = second.RootsPEM() }},
		"an authority that is not pinned": {spoil: func(e *wire.Enrolled) { e.CA += second.RootsPEM() }},
		"no authority":                    {spoil: func(e *wire.Enrolled) { e.CA = "" }},
		"text in the authority":           {spoil: func(e *wire.Enrolled) { e.CA = "hello\n" + e.CA }},
		"no certificate":                  {spoil: func(e *wire.Enrolled) { e.Certificate = ""; digest(e) }},
		"no issuing certificate": {spoil: func(e *wire.Enrolled) {
			e.Certificate = e.Certificate[:strings.Index(e.Certificate, "-----END")+len("-----END CERTIFICATE-----\n")]
			digest(e)
		}},
		"another serial":         {spoil: func(e *wire.Enrolled) { e.Serial = "1" + e.Serial[1:] + "0" }},
		"a serial in upper case": {spoil: func(e *wire.Enrolled) { e.Serial = "A" + e.Serial }},
		"another digest":         {spoil: func(e *wire.Enrolled) { e.Digest = strings.Repeat("0", 64) }},
		"altered configuration":  {spoil: func(e *wire.Enrolled) { e.Configuration["extra"] = "1" }},
		"no configuration":       {edit: func(_ *ca.Request, e *wire.Enrolled) { e.Configuration = nil }},
		"provision again": {edit: func(_ *ca.Request, e *wire.Enrolled) {
			e.Configuration["plugin.choria.server.provision"] = "1"
		}},
		"another identity": {edit: func(_ *ca.Request, e *wire.Enrolled) {
			e.Configuration["identity"] = "web2.example.net"
		}},
		"a malformed interval": {edit: func(_ *ca.Request, e *wire.Enrolled) {
			e.Configuration["registerinterval"] = "often"
		}},
		"a line break in a value": {edit: func(_ *ca.Request, e *wire.Enrolled) {
			e.Configuration["motd"] = "a\nprovision = true"
		}},
		"a policy outside":        {edit: func(_ *ca.Request, e *wire.Enrolled) { e.ActionPolicies["../../x"] = "" }},
		"a hidden policy":         {edit: func(_ *ca.Request, e *wire.Enrolled) { e.ActionPolicies[".x"] = "" }},
		"a policy in a directory": {edit: func(_ *ca.Request, e *wire.Enrolled) { e.OPAPolicies["a/b"] = "" }},
		"a policy without a name": {edit: func(_ *ca.Request, e *wire.Enrolled) { e.OPAPolicies[""] = "" }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			c := f.claims()
			if err := c.SetLimits(limits(f.authority.Fingerprint(), "")); err != nil {
				t.Fatal(err)
			}
			writeToken(t, cfg.TokenFile, c)
			f.set(func() {
				f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
					e := f.enrolled(r, tt.edit)
					if e != nil && tt.spoil != nil {
						tt.spoil(e)
					}
					return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: e}
				}
			})
			a := f.run(cfg)
			f.awaitLog("enrollment failed", "reply refused")
			if shows := snapshot(t, cfg); len(shows) > 0 {
				t.Errorf("written: %q", slices.Sorted(maps.Keys(shows)))
			}
			f.set(func() { f.enroll = nil })
			a.await(server.EventConfirmed, 1)
			if len(f.confirmations()) != 1 {
				t.Errorf("%d confirmations, want 1", len(f.confirmations()))
			}
		})
	}
}

func TestRepliesToOthersArePassedOver(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	nc := f.client(t, "provisioner")
	f.set(func() {
		f.enroll = func(*wire.EnrollRequest) *wire.Reply { return nil }
	})
	strangers, err := nc.SubscribeSync(wire.SubjectEnroll)
	if err == nil {
		err = nc.Flush() // the broker has it before the node's next request
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := f.node("web1.example.net")
	cfg.RequestTimeout = patience
	a := f.run(cfg)
	m, err := strangers.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	r, err := wire.DecodeEnroll(m.Data)
	if err != nil {
		t.Fatal(err)
	}
	say := func(reply *wire.Reply) {
		b, err := wire.Encode(f.signed(reply, r.Identity, m.Data))
		if err != nil {
			t.Fatal(err)
		}
		if err := nc.Publish(m.Reply, b); err != nil {
			t.Fatal(err)
		}
	}
	stop := &wire.Refusal{Code: wire.CodeShutdown, Message: "go away"}
	say(&wire.Reply{ID: "other", Enrolled: f.enrolled(r, nil)})
	say(&wire.Reply{ID: "other", Refusal: stop})
	say(&wire.Reply{Refusal: stop}) // without an id it only counts as a report that the request was unreadable
	say(accept(&wire.Applied{ID: "other", Serial: "1"}))
	if err := nc.Publish(m.Reply, []byte("{rubbish")); err != nil {
		t.Fatal(err)
	}
	right := f.issue(r)
	say(right)
	if e := a.await(server.EventConfirmed, 1); e.Serial != right.Enrolled.Serial {
		t.Errorf("applied certificate %s, want %s", e.Serial, right.Enrolled.Serial)
	}
	if len(f.requests()) != 1 {
		t.Errorf("%d requests, want 1", len(f.requests()))
	}
}

func TestRefusalIsLoggedOnceAndItsWaitHonored(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	const wait = 300 * time.Millisecond // six times the agent's longest own wait
	var asked []time.Time               // guarded by the fleet's lock
	f.set(func() {
		busy := refuse(wire.CodeBusy, wait)
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			n := 0
			f.set(func() { asked = append(asked, time.Now()); n = len(asked) })
			if n < 4 {
				return busy(r)
			}
			return f.issue(r)
		}
	})
	cfg := f.node("web1.example.net")
	cfg.SetRandom(func() float64 { return 0.4 }) // of a quarter: a tenth
	a := f.run(cfg)
	refused := a.await(server.EventRefused, 3)
	a.await(server.EventConfirmed, 1)
	if refused.Code != wire.CodeBusy {
		t.Errorf("refused with %q", refused.Code)
	}
	f.set(func() {
		for i := range asked[1:] {
			if d, least := asked[i+1].Sub(asked[i]), wait*11/10; d < least {
				t.Errorf("asked again after %v, want %v or more", d, least)
			}
		}
	})
	if n := f.countLog("enrollment refused", "code=busy", "retry_in=330ms", "remedy="); n != 1 {
		t.Errorf("logged %d times, want once per change", n)
	}
	ids := map[string]bool{}
	for _, r := range f.requests() {
		ids[r.ID] = true
	}
	if len(ids) != 4 {
		t.Errorf("%d request ids, want 4", len(ids))
	}
}

func TestAPolicyCanEndTheAgent(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.enroll = refuse(wire.CodeShutdown, 0) })
	cfg := f.node("web1.example.net")
	a := f.run(cfg)
	select {
	case <-a.done:
	case <-time.After(patience):
		t.Fatal("agent goes on")
	}
	if err := a.stop(); err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if f.countLog("agent stopped by a policy", "code=shutdown", "remedy=") != 1 {
		t.Errorf("log:\n%s", f.log.String())
	}
}

func TestOneKeyForAllAttemptsAndStarts(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.enroll = refuse(wire.CodeApprovalPending, 0) })
	cfg := f.node("web1.example.net")
	for start := 1; start <= 3; start++ {
		a := f.run(cfg)
		a.await(server.EventRefused, 2)
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
	}
	f.set(func() { f.enroll = nil })
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	boots := map[string]bool{}
	for _, r := range f.requests() {
		boots[r.Boot] = true
		if string(r.CSR) != string(f.requests()[0].CSR) {
			t.Fatal("another key or certificate request")
		}
	}
	if len(f.requests()) < 7 || len(boots) != 4 {
		t.Errorf("%d requests of %d starts", len(f.requests()), len(boots))
	}
	if !keyFits(t, snapshot(t, cfg)) {
		t.Error("certificate is for another key")
	}
}

func TestProvisionTrueEnrollsAgainWithTheSameKey(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	before := snapshot(t, cfg)
	writeFile(t, cfg.ConfFile, "provision = true\n") // replaces the link, as editors do
	a.await(server.EventConfirmed, 2)
	a.await(server.EventConnected, 2)
	after := snapshot(t, cfg)
	if before["private.pem"] != after["private.pem"] || before["certificate.pem"] == after["certificate.pem"] {
		t.Error("want the same key and a new certificate")
	}
	if strings.Contains(after["CONF"], "provision =") {
		t.Errorf("server.conf = %q", after["CONF"])
	}
	f.checkTidy(t, cfg)
}

func TestTwoAgentsDoNotShareADirectory(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	second, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(t.Context()); !errors.Is(err, server.ErrLocked) {
		t.Errorf("Run of the second = %v, want ErrLocked", err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.run(cfg).await(server.EventConnected, 1)
}

func TestNoTokenAndNoConfigurationIsOneClearError(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	if err := os.Remove(cfg.TokenFile); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Run(t.Context())
	if !errors.Is(err, server.ErrMode) || !errors.Is(err, server.ErrMissing) || strings.Contains(err.Error(), "\n") {
		t.Errorf("Run = %v, want one line wrapping ErrMode", err)
	}
}

func TestAnotherNodesDirectoryIsNotProvisionedOver(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, cfg server.Config){
		"as it was left": func(*testing.T, server.Config) {},
		"an operator says provision = true": func(t *testing.T, cfg server.Config) {
			writeFile(t, cfg.ConfFile, "provision = true\n")
		},
		"configuration lost": func(t *testing.T, cfg server.Config) {
			remove(t, cfg.ConfFile)
		},
		"authority lost": func(t *testing.T, cfg server.Config) {
			remove(t, filepath.Join(cfg.SSLDir, "ca.pem"))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			first := f.node("web1.example.net")
			attempt(t, f, first, server.EventConnected)
			change(t, first)
			before := snapshot(t, first)

			second := first
			second.Identity = "db1.example.net" // a mistake, or a copied disk
			s, err := server.New(second)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err = s.Run(ctx); !errors.Is(err, server.ErrMode) {
				t.Fatalf("Run = %v, want ErrMode", err)
			}
			for _, want := range []string{first.SSLDir +
				" belongs to web1.example.net, and this node is db1.example.net", "--ssl-dir", "remove " +
				first.SSLDir} {
				if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("Run = %v, want one line that says %q", err, want)
				}
			}
			if diff := cmp.Diff(before, snapshot(t, first)); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
			if n := len(f.requests()); n != 1 {
				t.Errorf("%d requests, want that of the first node alone", n)
			}

			if err := os.RemoveAll(first.SSLDir); err != nil {
				t.Fatal(err)
			}
			a := f.run(second)
			a.await(server.EventConnected, 1)
			if csr, err := ca.ParseCSR(f.requests()[1].CSR); err != nil || csr.CommonName != second.Identity {
				t.Errorf("request for %+v, %v", csr, err)
			}
		})
	}
}
