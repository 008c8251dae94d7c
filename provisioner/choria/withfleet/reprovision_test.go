package choria_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/events"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// alone is how long a re-provisioned server must be the only one with its name.
const alone = 30 * time.Second

// reprovision orders a server that is in its fleet to be provisioned again.
func reprovision(f *testbed.Fleet, secret string) error {
	_, err := f.Daemon().Orders().Nodes.Command(f.Context(), web1, operate.CommandOrder{
		Verb:   wire.VerbReprovision,
		Secret: wire.Secret(secret),
	}, testbed.Operator())
	return err
}

// provisionedFleet has a server in its fleet, that was provisioned and hears commands there.
func provisionedFleet(t *testing.T) (*testbed.Fleet, *server, *provisioner.Record, chan string) {
	t.Helper()
	url, edit := choriaBroker(t)
	f := newFleet(t, edit)
	s := start(t, f, web1, nil)
	first := s.provisioned()
	s.leave()
	commands := make(chan string, 8)
	inFleet(t, url, web1, commands)
	f.Clock.Advance(time.Minute) // the former connection is over, whatever the broker says of it
	return f, s, first, commands
}

// next waits for a command.
func next(t *testing.T, commands <-chan string) string {
	t.Helper()
	select {
	case c := <-commands:
		return c
	case <-time.After(time.Minute):
		t.Fatal("the server got no command")
		return ""
	}
}

func TestReprovisionedServerKeepsItsName(t *testing.T) {
	t.Parallel()
	f, s, first, commands := provisionedFleet(t)
	f.Eventually("the server is ordered back", func() bool { return reprovision(f, testbed.Secret) == nil })
	if c := next(t, commands); !strings.Contains(c, `"reprovision"`) || !strings.Contains(c, testbed.Secret) {
		t.Errorf("the server got %s", c)
	}
	s.connect()
	f.Eventually("the server is asked", func() bool { f.Clock.Advance(alone); return s.has("restart") })
	second := f.Record(web1)
	if second.Decision.Reason != provisioner.ReasonGrant || second.Current.KeyHash == first.Current.KeyHash {
		t.Errorf("reason %s, keys %s and %s", second.Decision.Reason, first.Current.KeyHash, second.Current.KeyHash)
	}
	f.Check()
}

// A thief with the token, which every machine has, waits on the name at the gateway.
func TestThiefOnTheNameStopsTheOrder(t *testing.T) {
	t.Parallel()
	f, _, _, commands := provisionedFleet(t)
	thief, err := connect(f, web1)
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	if err := reprovision(f, testbed.Secret); !errors.Is(err, trust.ErrState) {
		t.Errorf("the order: %v", err)
	}
	if len(commands) > 0 {
		t.Error("the server was ordered back")
	}
}

// A thief tries to connect in the server's place, while the server comes back.
func TestSecondConnectionVoidsTheOrder(t *testing.T) {
	t.Parallel()
	f, s, first, commands := provisionedFleet(t)
	f.Eventually("the server is ordered back", func() bool { return reprovision(f, testbed.Secret) == nil })
	next(t, commands)
	s.connect()
	if thief, err := connect(f, web1); err == nil {
		thief.Close()
		t.Fatal("a second connection was admitted")
	}
	f.Eventually("an alarm", func() bool {
		return slices.ContainsFunc(f.Daemon().Alarms(), func(a events.Alarm) bool { return a.Code == events.AlarmContested })
	})
	f.Clock.Advance(2 * alone)
	f.Eventually("the server is refused", func() bool {
		return slices.ContainsFunc(f.Events(), func(e events.Event) bool {
			return e.Type == events.Refused && e.Code == wire.CodeIdentityTaken && e.Node == web1
		})
	})
	if r := f.Record(web1); r.Current.KeyHash != first.Current.KeyHash || s.has("configure") {
		t.Error("the name got another key")
	}
}

func TestWrongSecretIsNotSent(t *testing.T) {
	t.Parallel()
	f, _, _, commands := provisionedFleet(t)
	for _, secret := range []string{"", "guess"} {
		var wrong *provisioner.OrderError
		if err := reprovision(f, secret); !errors.As(err, &wrong) || secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("secret %q: %v", secret, err)
		}
	}
	if len(commands) > 0 {
		t.Error("the server got a command")
	}
}

func TestServersAreProvisionedAgainBeforeTheirCertificatesEnd(t *testing.T) {
	t.Parallel()
	url, edit := choriaBroker(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(testbed.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
	f := testbed.New(t, testbed.Options{
		Policy: `package muster.enroll

allow := true

certificate := {"ttl": "2h"}
`,
		Template: "loglevel = info\n",
		Edit: func(c *daemon.Config) {
			edit(c)
			c.Choria.Brokers = []string{"broker.example.net:4222"}
			c.Choria.Renew.Before, c.Choria.Renew.SecretFile = conffile.Span(90*time.Minute), secret
		},
	})
	s := start(t, f, web1, nil)
	first := s.provisioned()
	s.leave()
	commands := make(chan string, 8)
	inFleet(t, url, web1, commands)
	f.Clock.Advance(time.Hour)
	if c := next(t, commands); !strings.Contains(c, `"reprovision"`) {
		t.Errorf("the server got %s", c)
	}
	s.connect()
	f.Eventually("the server is asked", func() bool { f.Clock.Advance(alone); return s.has("restart") })
	if second := f.Record(web1); !second.Current.NotAfter.After(first.Current.NotAfter) {
		t.Errorf("the certificate ends at %v, as before", second.Current.NotAfter)
	}
}

// TestServerThatIsNotBackIsAnAlarm has one server come back to its fleet, and then two that get another setting and do
// not: one arrives late, the other is retired.
func TestServerThatIsNotBackIsAnAlarm(t *testing.T) {
	t.Parallel()
	url, edit := choriaBroker(t)
	f := testbed.New(t, testbed.Options{
		Template: "loglevel = {{ if eq .Identity \"web1.example.net\" }}info{{ else }}debug{{ end }}\n",
		Edit:     func(c *daemon.Config) { edit(c); c.Choria.Brokers = []string{"broker.example.net:4222"} },
	})
	conn := inFleet(t, url, web1, nil)
	arrives := func(name string) {
		t.Helper()
		event := `{"data":{"identity":"` + name + `"}}`
		if err := conn.Publish("choria.lifecycle.event.startup.server", []byte(event)); err != nil {
			t.Fatal(err)
		}
	}
	cause := func() string {
		i := slices.IndexFunc(f.Daemon().Alarms(), func(a events.Alarm) bool { return a.Code == events.AlarmNotBack })
		if i < 0 {
			return ""
		}
		return f.Daemon().Alarms()[i].Cause
	}
	first := start(t, f, web1, nil)
	first.provisioned()
	first.leave()
	const late, lost = "late.example.net", "lost.example.net"
	for _, name := range []string{late, lost} {
		s := start(t, f, name, nil)
		s.provisioned()
		s.leave()
	}
	f.Eventually("the first server's event is heard", func() bool {
		arrives(web1)
		return strings.Contains(f.Log(), "server is back in its Choria fleet")
	})
	f.Clock.Advance(11 * time.Minute)
	f.Eventually("an alarm names both", func() bool {
		return strings.Contains(cause(), late) && strings.Contains(cause(), lost)
	})
	if c := cause(); strings.Contains(c, web1) || !strings.Contains(c, "came back: loglevel)") {
		t.Errorf("the alarm says %s", c)
	}
	arrives(late)
	if err := f.Daemon().Orders().Nodes.Retire(f.Context(), lost, testbed.Operator(), provisioner.Precondition{}); err != nil {
		t.Fatal(err)
	}
	f.Eventually("the alarm ends", func() bool { return cause() == "" })
}
