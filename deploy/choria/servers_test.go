package choria_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"muster/internal/testproc"
)

// TestServers boots servers together, and looks at each.
func TestServers(t *testing.T) {
	t.Parallel()
	f := newEmbedded(t)
	const policy = "prov/policy/choria.rego"
	f.write(policy, f.contents(policy)+`
deny contains "no room in this rack" if input.identity == "denied.example.net"
shutdown if input.identity == "retired.example.net"
approval if input.identity == "pending.example.net"
deny contains "no facts" if {
	startswith(input.identity, "facts")
	not input.facts.rack == "4"
}
`)
	f.write("facts.json", `{"rack": "4"}`)
	f.start()
	muster := f.brokers[0]
	provisioned := map[string]*server{
		"a server of protocol 1":        f.boot(newest, "web1.example.net", muster),
		"an older server of protocol 1": f.boot(oldest, "web2.example.net", muster),
		"a server of protocol 2":        f.boot(newest, "web3.example.net", muster, "--protocol-v2"),
		"an older server of protocol 2": f.boot(oldest, "web4.example.net", muster, "--protocol-v2"),
	}
	for _, version := range []string{newest, oldest} {
		provisioned["the facts and the login of a token, "+version] = f.boot(version, "facts-"+strings.ReplaceAll(version, ".", "-")+
			".example.net", muster, "--facts", filepath.Join(f.dir, "facts.json"), "--registration",
			filepath.Join(f.dir, "facts.json"), "--username", "choria", "--password", "unused")
	}
	denied := f.boot(newest, "denied.example.net", muster)
	pending := f.boot(newest, "pending.example.net", muster)
	retired := f.boot(newest, "retired.example.net", muster)
	capital := f.boot(oldest, "Web5.Example.Net", muster)
	sealed := f.boot(newest, "web6.example.net", muster, "--seal", "prov/seal.pub")
	open := newProxy(t, f, muster, step{"gencsr", true})
	first := f.boot(newest, "twin.example.net", open.address)
	second := f.boot(newest, "twin.example.net", muster)
	for name, s := range provisioned {
		t.Run(name, func(t *testing.T) { s.once(s.provisioned()) })
	}
	t.Run("a denied server is admitted after a change of the policy", func(t *testing.T) {
		f.waitRefused("denied", "no room in this rack", "--node", denied.host)
		if told := f.muster("node", "explain", denied.host); !strings.Contains(told, "no room in this rack") {
			t.Errorf("muster node explain prints:\n%s", told)
		}
		f.edit(policy, "denied.example.net", "another.example.net")
		f.muster("policy", "reload")
		denied.kill()
		denied.start()
		denied.once(denied.provisioned())
	})
	t.Run("a server waits for an approval with one key", func(t *testing.T) {
		f.waitRefused("approval_pending", "", "--node", pending.host)
		f.muster("node", "approve", pending.host, "--why", "a test")
		pending.once(pending.provisioned())
	})
	t.Run("a server is shut down", func(t *testing.T) {
		if status := retired.exit(); status != 0 {
			t.Errorf("the server ended with %d", status)
		}
		f.waitRefused("shutdown", "", "--node", retired.host)
	})
	t.Run("an identity in capitals is refused", func(t *testing.T) {
		f.waitRefused("identity_invalid", "Web5.Example.Net")
		capital.waitFor("Authorization Violation")
	})
	t.Run("a sealed token is refused", func(t *testing.T) {
		f.waitRefused("sealed_invalid", "requires sealing")
		sealed.waitFor("Authorization Violation")
	})
	t.Run("of two servers with a name one gets it", func(t *testing.T) {
		eventually(t, "the first is asked", func() bool { return closed(open.held) })
		f.waitRefused("busy", "two machines may have one name")
		second.waitFor("Authorization Violation")
		close(open.released)
		winner, loser := first, second
		eventually(t, "a twin is in the fleet", func() bool { return len(f.inFleet(first.host)) > 0 })
		if strings.Contains(second.output(), "Restarting server") {
			winner, loser = second, first
		}
		winner.once(winner.provisioned())
		f.waitRefused("identity_taken", "another key", "--node", loser.host)
		if out := loser.output(); strings.Contains(out, "Rewriting configuration") {
			t.Errorf("the other twin was configured:\n%s", out)
		}
	})
}

// TestKilled stops exchanges with each of their messages, ends the provisioners as a power cut would, and starts them
// again. Each server gets one certificate.
func TestKilled(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*testing.T) *fleet{"one provisioner": newEmbedded, "three": newCluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := set(t)
			f.start()
			var servers []*server
			var proxies []*proxy
			boot := func(version, host string, at step, token ...string) {
				p := newProxy(t, f, f.brokers[len(proxies)%len(f.brokers)], at)
				proxies = append(proxies, p)
				servers = append(servers, f.boot(version, host, p.address, token...))
			}
			boot(newest, "admitted.example.net", step{"inventory", false})
			boot(newest, "known.example.net", step{"inventory", true})
			boot(newest, "keyed.example.net", step{"gencsr", true})
			boot(newest, "recorded.example.net", step{"configure", false})
			boot(newest, "configured.example.net", step{"configure", true})
			boot(newest, "applied.example.net", step{"restart", false})
			boot(newest, "restarted.example.net", step{"restart", true})
			boot(oldest, "keyed2.example.net", step{"gen25519", true}, "--protocol-v2")
			boot(newest, "configured2.example.net", step{"configure", true}, "--protocol-v2")
			for i, p := range proxies {
				eventually(t, servers[i].host+": "+p.step.String(), func() bool { return closed(p.held) })
			}
			for _, host := range f.hosts[min(1, len(f.hosts)-1):] { // the first of several takes over
				f.kill(host)
			}
			for _, p := range proxies {
				close(p.released)
			}
			if len(f.running) == 0 {
				f.start()
			}
			for _, s := range servers {
				s.once(s.provisioned())
			}
		})
	}
}

// TestBesideStockServers has a broker of muster's in a cluster of stock nats-servers, which demand certificates.
func TestBesideStockServers(t *testing.T) {
	t.Parallel()
	f := newClusterOf(t, 1)
	f.start()
	servers := []*server{
		f.boot(newest, "web1.example.net", f.brokers[0]),
		f.boot(oldest, "web2.example.net", f.brokers[0], "--protocol-v2"),
	}
	for _, s := range servers {
		s.once(s.provisioned())
	}
}

// TestOrders commands servers of protocol 2 in their fleet; the example does so with protocol 1.
func TestOrders(t *testing.T) {
	t.Parallel()
	f := newEmbedded(t)
	program := choriaProgram(t, newest)
	f.run(program, "jwt", "keys", "ops.seed", "ops.public")
	f.run(program, "jwt", "client", "ops.jwt", "ops", "organization.seed", "--fleet-management", "--event-viewer",
		"--public-key", f.contents("ops.public"))
	f.edit("prov/provisioner.yaml", "\n  issuer:\n", `
  fleet:
    url: tls://`+f.token+`
    ca: ../fleet.pem
    token: ../ops.jwt
    seed: ../ops.seed
  issuer:
`)
	f.edit("prov/policy/choria.rego", "configuration := {", `configuration := {"rpcauthorization": "0", `)
	f.start()
	order := func(verb string, servers ...*server) {
		t.Helper()
		args := []string{"node", verb, "--secret-file", "prov/secret", "--yes", "--why", "a test"}
		for _, s := range servers {
			args = append(args, s.host)
		}
		f.muster(args...)
	}
	arrived := func(s *server, times int) {
		t.Helper()
		eventually(t, s.host+" is back", func() bool {
			return strings.Count(s.output(), "Connected to nats://"+f.token) == times && len(f.inFleet(s.host)) == 1
		})
	}
	newer := f.boot(newest, "web1.example.net", f.brokers[0], "--protocol-v2")
	older := f.boot(oldest, "web2.example.net", f.brokers[0], "--protocol-v2")
	former := map[*server]*record{newer: newer.provisioned(), older: older.provisioned()}
	f.running["prov"].waitFor("server is back in its Choria fleet")
	order("restart", newer)
	arrived(newer, 2)
	order("reprovision", newer, older)
	arrived(newer, 3)
	arrived(older, 2)
	for s, r := range former {
		if now := s.provisioned(); now.Record.Lineage[0] == r.Record.Lineage[0] {
			t.Errorf("%s has its former key", s.host)
		}
	}
	order("shutdown", newer, older)
	for s := range former {
		if status := s.exit(); status != 0 {
			t.Errorf("%s ended with %d", s.host, status)
		}
	}
}

// TestExample runs examples/choria at a small size.
func TestExample(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	testproc.NeedsRoot(t)
	muster, err := builtMuster()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "../../examples/choria/run.sh")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has processes to end
	cmd.Env = append(os.Environ(), "NODES=6", "PORT="+testproc.FreePort(t), "CHORIA="+choriaProgram(t, newest),
		"MUSTER="+muster, "NATS_SERVER="+testproc.NATSServer(t), "TMPDIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("run.sh: %v\n%s", err, out)
	}
	for _, want := range []string{"6 servers are in the fleet", "this machine is for spare parts",
		"shut down retired.example.net", "provisioned again"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("run.sh does not print %q:\n%s", want, out)
		}
	}
}
