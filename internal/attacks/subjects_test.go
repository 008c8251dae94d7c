package attacks_test

import (
	"crypto/tls"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
)

// foreignSubjects are outside of what any node may use.
var foreignSubjects = []string{
	">", "*", "_INBOX.>", "_INBOX.*.*", "$SYS.>", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.AUTH", "$JS.API.>",
	"$JS.API.STREAM.PURGE.MUSTER_NODES", "$JS.API.DIRECT.GET.MUSTER_NODES.muster.node.web1_example_net", "$KV.>",
	"muster.>", "muster.node.web1_example_net", "muster.revocation.x", "muster.entry.allow.x", "muster.v1.>",
	"muster.v1.command.*", "muster.v1.command.db1_example_net", "muster.v1.command.web1",
	"muster.v1.event.db1_example_net.alive", "muster.v1.event.web1_example_net.other", "muster.v1.registration.>",
	"muster.view.>", "provisioning.node.web1", "provisioning.>", "provisioning.node.db1.example.net",
	"provisioning.reply.db1_example_net.x.y", "choria.lifecycle.>", "mcollective.>",
}

// TestForeignSubjects has a token's holder, a Choria server and a node of the fleet publish and subscribe where they may not. The
// broker refuses each: nothing is delivered, and the connection learns it by an error of permissions.
func TestForeignSubjects(t *testing.T) {
	t.Parallel()
	tg := install(t)
	tg.edit("provisioner.yaml", "\nchoria:\n", "\nchoria:\n  brokers: [broker.example.net]\n")
	tg.start()
	n, enrolled := tg.provision("web1.example.net")
	refused := make(chan error, 1)
	report := nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err })
	holder := tg.dial(tg.token(nil), report)
	member, err := n.DialFleet("nats://"+tg.broker, enrolled, report)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(member.Close)
	server, err := nats.Connect("nats://"+tg.broker, nats.Name("web2.example.net"), nats.Token(tg.token(nil)), report,
		nats.Secure(&tls.Config{InsecureSkipVerify: true}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	for name, nc := range map[string]*nats.Conn{"a token's holder": holder, "a node of the fleet": member,
		"a Choria server": server} {
		subjects := append([]string{"muster.v1.event.web1_example_net.alive.more"}, foreignSubjects...)
		if nc != member {
			subjects = append(subjects, wire.SubjectRenew, wire.SubjectCertificate, "muster.v1.event.web1_example_net.alive",
				"muster.v1.command.web1_example_net")
		}
		if nc != holder {
			subjects = append(subjects, wire.SubjectEnroll)
		}
		for _, subject := range subjects {
			for what, try := range map[string]func() error{
				"publish":   func() error { return nc.Publish(subject, []byte("{}")) },
				"subscribe": func() error { _, err := nc.SubscribeSync(subject); return err },
			} {
				if what == "publish" && strings.ContainsAny(subject, "*>") {
					continue // a publisher's subject is literal
				}
				if what == "subscribe" && subject == "muster.v1.command.web1_example_net" && nc == member {
					continue
				}
				if err := try(); err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-refused:
					if !strings.Contains(strings.ToLower(err.Error()), "permissions violation") {
						t.Errorf("%s: %s to %s: %v", name, what, subject, err)
					}
				case <-time.After(patience):
					t.Errorf("%s: %s to %s is not refused", name, what, subject)
				}
			}
		}
	}
}
