package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/internal/testproc"
	"muster/provisioner/broker"
)

// watched watches the server, and logs nothing of it.
func (o *outside) watched(t *testing.T) *broker.External {
	t.Helper()
	e, err := broker.NewExternal(broker.ExternalConfig{URLs: o.url, Keys: o.keys, Gate: o.config(t).Gate, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	e.WatchEvery(50 * time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := e.Start(ctx); err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Watch(watching) }()
	t.Cleanup(func() {
		stop()
		if err := receive(t, "end of the watch", done); err != nil {
			t.Error(err)
		}
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}

// becomes waits until what is wrong with the servers says want, or nothing if that is empty.
func becomes(t *testing.T, e *broker.External, want string) {
	t.Helper()
	eventually(t, "it is said that "+want, func() bool {
		err := e.Misconfigured()
		if want == "" {
			return err == nil
		}
		return errors.Is(err, broker.ErrMisconfigured) && strings.Contains(err.Error(), want)
	})
}

// process is an outside whose server is a process, so that it can be told to read its
// configuration again: where nats-server does that beside a client that is connecting, the race
// detector finds a race of its own (v2.15.3, auth.go:726 reads c.acc without c.mu), which would
// fail every test of this process.
type process struct {
	*outside
	cmd *exec.Cmd
}

// newProcess starts the server, and nobody who answers it.
func newProcess(t *testing.T) *process {
	t.Helper()
	keys, err := broker.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	return startProcess(t, &outside{site: newSite(t), keys: keys, path: serverFile(t, keys, nil)})
}

// startProcess starts the server of o with its configuration, until the test ends.
func startProcess(t *testing.T, o *outside) *process {
	t.Helper()
	ports, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	p := &process{o, exec.Command(testproc.NATSServer(t), "-c", o.path, "--ports_file_dir", ports, "--log", log)}
	if err := testproc.Start(p.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait() // it was killed
		if t.Failed() {
			said, err := os.ReadFile(log)
			t.Logf("nats-server: %s%v", said, err)
		}
	})
	eventually(t, "the ports where the server listens", func() bool {
		b, err := os.ReadFile(filepath.Join(ports, fmt.Sprintf("%s_%d.ports", filepath.Base(p.cmd.Path), p.cmd.Process.Pid)))
		var listens server.Ports
		if err != nil || json.Unmarshal(b, &listens) != nil || len(listens.Nats) == 0 {
			return false // not there, or written in part
		}
		o.url = listens.Nats[0]
		return true
	})
	return p
}

// reload has the server read its configuration again, changed by edit.
func (p *process) reload(t *testing.T, edit func(string) string) {
	t.Helper()
	b, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	text := edit(string(b))
	if text == string(b) {
		t.Fatal("nothing is changed")
	}
	if err := os.WriteFile(p.path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// TestAPermissionThatIsTakenAwayIsMissed takes from a provisioner, as it runs, each permission
// that it needs to drop connections, and gives it back. Nothing else tells it: a server says nothing
// to who asks what is not permitted.
func TestAPermissionThatIsTakenAwayIsMissed(t *testing.T) {
	t.Parallel()
	for _, subject := range []string{"$SYS.REQ.SERVER.*.KICK", "$SYS.SERVER.*.STATSZ", "_INBOX.muster.>"} {
		t.Run(subject, func(t *testing.T) {
			t.Parallel()
			o := newProcess(t)
			e := o.watched(t)
			change := func(from, to string) {
				o.reload(t, func(text string) string { return strings.Replace(text, `"`+from+`"`, `"`+to+`"`, 1) })
			}
			becomes(t, e, "")
			change(subject, "nobody")
			becomes(t, e, "not all is permitted")
			if err := e.Misconfigured(); err != nil && !strings.Contains(err.Error(), "muster broker config") {
				t.Errorf("%v: want what to do", err)
			}
			change("nobody", subject)
			becomes(t, e, "")
		})
	}
}

// TestALimitThatIsChangedUnderAConnectionIsMissed lowers what a server takes while a
// provisioner is connected, whom it does not tell, and gives it back.
func TestALimitThatIsChangedUnderAConnectionIsMissed(t *testing.T) {
	t.Parallel()
	o := newProcess(t)
	e := o.watched(t)
	becomes(t, e, "")
	o.reload(t, func(text string) string {
		return strings.Replace(text, "max_payload: 8388608", "max_payload: 65536", 1)
	})
	becomes(t, e, "max_payload is 65536")
	o.reload(t, func(text string) string {
		return strings.Replace(text, "max_payload: 65536", "max_payload: 8388608", 1)
	})
	becomes(t, e, "")
}

// TestAClockThatIsOffIsMissed has a server of the cluster say by its signs of life that it is
// another time there.
func TestAClockThatIsOffIsMissed(t *testing.T) {
	t.Parallel()
	o := newServer(t, func(text string) string {
		text = strings.Replace(text, "auth_users: [", "auth_users: [elsewhere, ", 1)
		return regexp.MustCompile(`\{nkey: \S+, permissions`).ReplaceAllString(text, "{user: elsewhere, password: secret}, $0")
	})
	e := o.watched(t)
	elsewhere, err := nats.Connect(o.url, nats.UserInfo("elsewhere", "secret"), nats.Timeout(patience))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(elsewhere.Close)
	var off atomic.Int64
	if _, err := elsewhere.Subscribe("$SYS.REQ.SERVER.PING.JSZ", func(m *nats.Msg) {
		b, err := json.Marshal(map[string]any{
			"server": server.ServerInfo{Name: "elsewhere", ID: "NELSEWHERE", Time: time.Now().Add(time.Duration(off.Load()))},
			"data":   server.JSInfo{Disabled: true},
		})
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(b) // the error says that it was not asked for an answer
	}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		off  time.Duration
		want string // in what is said; empty for nothing
	}{{-24 * time.Hour, "24h0m0s"}, {time.Hour, "1h0m0s"}, {time.Minute, ""}} {
		off.Store(int64(tt.off))
		if tt.want != "" {
			tt.want = `the clock of server "elsewhere" differs by ` + tt.want
		}
		becomes(t, e, tt.want)
	}
}

// TestAQuestionThatCannotBeReadIsMissed gives one of two provisioners another xkey than the
// server and the other one have.
func TestAQuestionThatCannotBeReadIsMissed(t *testing.T) {
	t.Parallel()
	o := newServer(t, nil)
	keys := o.keys
	other, err := broker.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	keys.XKey = other.XKey
	wrong := o.provisioner(t, keys, o.url)
	if err := wrong.Misconfigured(); err != nil {
		t.Errorf("nobody has asked: %v", err)
	}
	nc, err := nats.Connect(o.url, nats.Token(goodToken), nats.Name(strings.Repeat("A", 22)), nats.NoReconnect(), nats.Timeout(patience))
	if err == nil {
		nc.Close()
		t.Error("a node is let in by who cannot read what it presents")
	}
	becomes(t, wrong, "another xkey than broker.callout.xkey")
	if wrong.Unread() == nil {
		t.Error("it counts as one that serves")
	}
	right := o.provisioner(t, o.keys, o.url)
	if public := right.PublicKeys(); public["xkey"] == wrong.PublicKeys()["xkey"] || public["issuer"] != wrong.PublicKeys()["issuer"] || !nkeys.IsValidPublicCurveKey(public["xkey"]) {
		t.Errorf("keys %v and %v, want that only the xkey differs", public, wrong.PublicKeys())
	}
}
