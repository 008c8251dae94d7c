package testbed_test

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/store"
)

// configured returns how a stream is configured.
func configured(t *testing.T, f *testbed.Fleet, js jetstream.JetStream, name string) jetstream.StreamConfig {
	t.Helper()
	stream, err := js.Stream(f.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().Config
}

// TestAStreamThatIsChanged configures streams of records under a provisioner so that they keep
// less, or take less, as somebody may who watches over disks: it is as before within moments, and
// the log says what was changed.
func TestAStreamThatIsChanged(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	first := f.Node("web1.example.net")
	f.Apply(first, f.Enroll(first))
	js := careless(t, f)
	for what, tt := range map[string]struct {
		stream string
		edit   func(*jetstream.StreamConfig)
	}{
		"max_msgs is 1000":                    {"MUSTER_CLAIMS", func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 }},
		"max_bytes is 1000000000":             {"MUSTER_NODES", func(c *jetstream.StreamConfig) { c.MaxBytes = 1e9 }},
		"max_age is 1h0m0s":                   {"MUSTER_REVOCATIONS", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }},
		"max_msgs_per_subject is 1000":        {"MUSTER_REVOCATIONS", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1000 }},
		"max_msgs_per_subject is 5":           {"MUSTER_NODES", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }},
		"max_msg_size is 100000":              {"MUSTER_NODES", func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100_000 }},
		"discard is DiscardNew":               {"MUSTER_ENTRIES", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardNew }},
		"no_ack is true":                      {"MUSTER_CLAIMS", func(c *jetstream.StreamConfig) { c.NoAck = true }},
		"subjects is muster.claims.elsewhere": {"MUSTER_CLAIMS", func(c *jetstream.StreamConfig) { c.Subjects = []string{"muster.claims.elsewhere"} }},
	} {
		t.Run(what, func(t *testing.T) {
			before := configured(t, f, js, tt.stream)
			changed := before
			tt.edit(&changed)
			if _, err := js.UpdateStream(f.Context(), changed); err != nil {
				t.Fatal(err)
			}
			f.Eventually("it is changed back", func() bool {
				now := configured(t, f, js, tt.stream)
				return now.MaxMsgs == before.MaxMsgs && now.MaxBytes == before.MaxBytes && now.MaxAge == before.MaxAge && now.MaxMsgsPerSubject == before.MaxMsgsPerSubject &&
					now.MaxMsgSize == before.MaxMsgSize && now.Discard == before.Discard && now.NoAck == before.NoAck && strings.Join(now.Subjects, " ") == strings.Join(before.Subjects, " ")
			})
			f.Eventually("the log says what it was", func() bool { return strings.Contains(f.Log(), what) })
		})
	}
	f.WaitNoAlarm(wire.CodeStoreUnavailable)
	last := f.Node("web2.example.net")
	last.Token = f.Token(testbed.Limited(1))
	f.Apply(last, f.Enroll(last))
	f.Check()
}

// TestFewerReplicas takes copies of a stream away.
func TestFewerReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 3})
	js := careless(t, f)
	changed := configured(t, f, js, "MUSTER_NODES")
	changed.Replicas = 1
	if _, err := js.UpdateStream(f.Context(), changed); err != nil {
		t.Fatal(err)
	}
	f.Eventually("there are three again", func() bool { return configured(t, f, js, "MUSTER_NODES").Replicas == 3 })
	f.Enroll(f.Node("web1.example.net"))
	f.Check()
}

// TestClaimsThatAreRemovedByALimit has somebody bound the log of claims, which forgets who has
// used a token: nobody is let in, an alarm says so, and no start takes it for whole.
func TestClaimsThatAreRemovedByALimit(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	token := f.Token(testbed.Limited(2))
	for _, name := range []string{"web1.example.net", "web2.example.net"} {
		n := f.Node(name)
		n.Token = token
		f.Apply(n, f.Enroll(n))
	}
	js := careless(t, f)
	changed := configured(t, f, js, "MUSTER_CLAIMS")
	changed.MaxMsgs = 1
	if _, err := js.UpdateStream(f.Context(), changed); err != nil {
		t.Fatal(err)
	}
	f.Eventually("an alarm says so", func() bool {
		return strings.Contains(f.WaitAlarm(wire.CodeStoreUnavailable), "MUSTER_CLAIMS begins at sequence")
	})
	third := f.Node("web3.example.net")
	third.Token = token
	if letIn(f, third) {
		t.Error("a third machine gets in by two uses")
	}
	f.Stop()
	refuses(t, f, store.ErrLost)
}

// TestRecordsThatAreRemovedByALimit has somebody bound the records, which frees names.
func TestRecordsThatAreRemovedByALimit(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Servers: 1})
	for _, n := range f.Nodes(3) {
		f.Apply(n, f.Enroll(n))
	}
	f.Eventually("it is known how many there are", func() bool { return f.Daemon().Store().Whole(f.Context()) == nil })
	js := careless(t, f)
	changed := configured(t, f, js, "MUSTER_NODES")
	changed.MaxMsgs = 1
	if _, err := js.UpdateStream(f.Context(), changed); err != nil {
		t.Fatal(err)
	}
	f.Eventually("an alarm says so", func() bool {
		return strings.Contains(f.WaitAlarm(wire.CodeStoreUnavailable), "MUSTER_NODES has something on")
	})
	if letIn(f, f.Node("node1.example.net")) {
		t.Error("somebody is let in")
	}
}
