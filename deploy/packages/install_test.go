package packages_test

import (
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/testproc"
)

// TestLintianIsContent checks what is in dist/packages.
func TestLintianIsContent(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	run(t, nil, "bash", "-c", "lintian --allow-root --fail-on error,warning --display-level '>=warning' dist/packages/*.deb")
}

// TestInstalled installs packages of the programs in dist on machines of its own.
func TestInstalled(t *testing.T) {
	t.Parallel()
	testproc.NeedsInstall(t)
	testproc.NeedsRoot(t)
	dist, err := filepath.Abs(filepath.Join(root, "dist"))
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]string{"old": build(t, dist, "v0.1.0-rc1"), "new": build(t, dist, "v0.1.0")}
	base := debian(t)
	for name, test := range map[string]func(*testing.T, maker){"Fleet": fleet, "Broker": separateBroker, "OpenRC": openRC} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := network(t)
			test(t, func(name string) *machine { return newMachine(t, base, network, name, packages) })
		})
	}
}

// A maker makes a machine that has a name and packages in /old and /new.
type maker func(name string) *machine

// fleet is the way of docs/install.md on Debian: a central machine, a node that has only the package and the token,
// reboots, an upgrade, and the end.
func fleet(t *testing.T, newMachine maker) {
	central, node := newMachine("central.example.net"), newMachine("web1.example.net")
	central.boot(t)
	central.run(t, "apt-get install -y /old/muster_*.deb /old/muster-server_*.deb")
	for unit, want := range map[string]string{
		"muster-provisioner": "disabled", "muster-broker": "disabled",
		"muster-server": "enabled", "muster-server.path": "enabled",
	} {
		if got := central.run(t, "systemctl is-enabled "+unit+" || true"); strings.TrimSpace(got) != want {
			t.Errorf("%s is %s, want %s", unit, got, want)
		}
	}
	central.run(t, "! systemctl is-active muster-provisioner muster-broker muster-server")
	central.run(t, "systemctl start muster-provisioner; ! systemctl is-failed muster-provisioner")

	central.run(t, "muster provisioner init /etc/muster/provisioner --host prov1.example.net --listen :4222")
	central.run(t, `sed -i 's/^  # websocket:/  websocket:/; s/^  #   listen: ":443"/    listen: ":443"/' \
    /etc/muster/provisioner/provisioner.yaml
systemctl enable --now muster-provisioner`)
	central.wants(t, "", "muster status")
	central.run(t, "timeout 5 bash -c ': </dev/tcp/localhost/443'")
	central.run(t, `cd /etc/muster/provisioner
muster jwt /root/provisioning.jwt signer-key.pem --insecure --token "$(head -c 16 /dev/urandom | base64)" --default \
    --urls prov1.example.net:4222 --ca ca/root.pem --seal seal.pub
muster allow add web1.example.net --expires 2h
muster allow add central.example.net --expires 2h`)

	t.Log("a node has the package and the token alone, in an image")
	node.offline(t, "dpkg -i /old/muster-server_*.deb")
	node.write(t, "/etc/provisioning.jwt", central.run(t, "cat /root/provisioning.jwt"), 0o600)
	node.boot(t)
	provisioned(t, central, "web1.example.net")
	served(t, node)

	t.Log("the token appears on a running machine")
	central.run(t, "install -m 0600 /root/provisioning.jwt /etc/provisioning.jwt")
	provisioned(t, central, "central.example.net")

	t.Log("both are booted again")
	serial := node.run(t, certificate)
	central.stop(t)
	node.stop(t)
	central.boot(t)
	node.boot(t)
	node.wants(t, "connected to the fleet", "journalctl --boot -u muster-server")
	if again := node.run(t, certificate); again != serial {
		t.Errorf("the certificate is %s, was %s", again, serial)
	}

	upgraded(t, central, node)
	removed(t, central)
}

// certificate prints the serial number of a node's certificate.
const certificate = "openssl x509 -noout -serial -in /etc/muster/ssl/certificate.pem"

func provisioned(t *testing.T, central *machine, name string) {
	t.Helper()
	central.wants(t, name, "muster node list --state provisioned -o name")
}

// served lets the agent write a service certificate outside of its own directories, restart a unit, and run a program,
// within the limits of its unit. certmonger's file is in place, and its helper asks the agent.
func served(t *testing.T, node *machine) {
	t.Helper()
	node.run(t, `mkdir /etc/demo
cat >/etc/systemd/system/demo.service <<END
[Service]
Type=oneshot
ExecStart=/bin/touch /etc/demo/restarted
END
systemctl daemon-reload
cd /etc/muster
test "$(stat -c %a:%U certificates.d actions.d tls)" = "$(printf '755:root\n755:root\n755:root')"
echo '{unit: demo.service, verb: restart}' >actions.d/unit.yaml
echo '{program: /bin/touch, arguments: [/etc/demo/program]}' >actions.d/program.yaml
echo '{dns_names: [web1.example.net], files: {combined: {path: /etc/demo/a.pem, group: adm}}, action: unit}' >certificates.d/a.yaml
echo '{dns_names: [web1.example.net], files: {combined: {path: /etc/muster/tls/b.pem}}, action: program}' >certificates.d/b.yaml
`)
	node.wants(t, "ok    service a", "muster-server certificate check")
	node.run(t, `test -e /etc/demo/restarted -a -e /etc/demo/program
muster-server certificate show a b
openssl verify -CAfile /etc/muster/ssl/ca.pem -untrusted /etc/demo/a.pem /etc/demo/a.pem
test "$(stat -c %a:%U:%G /etc/demo/a.pem)" = 600:root:adm
test "$(stat -c %a /run/muster-server /run/muster-server/agent.sock)" = "$(printf '700\n600')"
grep -x ca_external_helper='/usr/bin/muster-server certmonger' /var/lib/certmonger/cas/muster
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout /etc/demo/c.key -subj / \
    -addext subjectAltName=DNS:web1.example.net 2>/dev/null >/etc/demo/c.csr
CERTMONGER_OPERATION=SUBMIT CERTMONGER_CSR="$(cat /etc/demo/c.csr)" muster-server certmonger | openssl x509 -noout -subject`)
}

// upgraded upgrades first the central machine, then the node.
func upgraded(t *testing.T, central, node *machine) {
	t.Helper()
	central.run(t, "echo '# edited' >>/etc/muster/provisioner/provisioner.yaml")
	before := central.run(t, "systemctl show -P MainPID muster-provisioner muster-server")
	since := strings.TrimSpace(node.run(t, "date +%s"))
	central.run(t, "dpkg -i /new/muster_*.deb /new/muster-server_*.deb")
	central.wants(t, "", "muster status")
	if after := central.run(t, "systemctl show -P MainPID muster-provisioner muster-server"); after == before {
		t.Errorf("the upgrade did not restart the services: they are %s", after)
	}
	central.run(t, "grep -q '# edited' /etc/muster/provisioner/provisioner.yaml")
	node.wants(t, "connected to the fleet", "journalctl -u muster-server --since @"+since)
	provisioned(t, central, "web1.example.net")

	since = strings.TrimSpace(node.run(t, "sleep 1; date +%s"))
	node.run(t, "dpkg -i /new/muster-server_*.deb")
	node.wants(t, "connected to the fleet", "journalctl -u muster-server --since @"+since)
	central.run(t, "dpkg --verify muster muster-server")
}

// removed removes and purges: keys, records and the user stay. Installed again, all is as it was.
func removed(t *testing.T, central *machine) {
	t.Helper()
	central.run(t, "dpkg -r muster muster-server; dpkg -P muster muster-server")
	central.run(t, `! test -e /usr/bin/muster
! ls -l /proc/*/exe | grep muster
! ls /etc/systemd/system/multi-user.target.wants | grep muster
getent passwd muster
test -f /etc/muster/provisioner/ca/issuing-key.pem -a -d /var/lib/muster/broker -a -f /etc/muster/server.conf`)
	central.run(t, "dpkg -i /new/muster_*.deb && systemctl enable --now muster-provisioner")
	central.wants(t, "web1.example.net", "muster node list --state provisioned -o name")
}

// separateBroker is the way of docs/high-availability.md, with one broker.
func separateBroker(t *testing.T, newMachine maker) {
	m := newMachine("n1.example.net")
	m.boot(t)
	m.run(t, "apt-get install -y /new/muster_*.deb")
	m.run(t, `cd /etc/muster 2>/dev/null || mkdir /etc/muster
muster provisioner init /etc/muster/provisioner --host prov1.example.net --broker-urls tls://n1.example.net:4222 --replicas 1
muster broker config --config /etc/muster/provisioner/provisioner.yaml --host n1.example.net \
    --write --dir /etc/muster/broker --store-dir /var/lib/muster-broker
chown -R muster: /etc/muster/broker
systemctl enable --now muster-broker muster-provisioner`)
	m.wants(t, "", "muster status")

	m.run(t, `muster broker certificate /etc/muster/broker --host n1.example.net \
    --config /etc/muster/provisioner/provisioner.yaml
systemctl reload muster-broker`)
	m.wants(t, "configuration reloaded", "journalctl -u muster-broker")
	m.run(t, "systemctl restart muster-broker; systemctl show -P Result muster-broker | grep -x success")
	m.wants(t, "", "muster status")
}

// openRC installs the apks without Alpine's package manager, on a Debian with OpenRC, and enrolls a node.
func openRC(t *testing.T, newMachine maker) {
	newMachine("web1.example.net").offline(t, `useradd --system --no-create-home muster
for program in muster muster-server; do tar -xzf /new/${program}_0.1.0-r1_x86_64.apk -C /; done
sh /.post-install
mkdir -p /run/openrc/exclusive /run/openrc/started && touch /run/openrc/softlevel # as if OpenRC had booted
muster provisioner init /etc/muster/provisioner --host prov1.example.net --trust-first-use
rc-service --nodeps muster-provisioner start
timeout 60 sh -c 'until muster status; do sleep 0.2; done'
cd /etc/muster/provisioner
muster jwt /etc/provisioning.jwt signer-key.pem --insecure --token secret --default \
    --urls localhost:4222 --ca ca/root.pem --seal seal.pub
rc-service --nodeps muster-server start
timeout 60 sh -c 'until muster node list --state provisioned -o name | grep .; do sleep 0.2; done'
rc-service --nodeps muster-server stop
rc-service --nodeps muster-provisioner stop
! ls -l /proc/*/exe | grep muster`)
}
