package broker_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/provisioner/broker"
)

func TestMisconfiguredServerIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ from, to, want string }{
		"drop connections": {"$SYS.REQ.SERVER.*.KICK", "unused", "cannot be disconnected"},
		"list connections": {"$SYS.REQ.SERVER.PING.CONNZ", "unused", "cannot be disconnected"},
		"signs of life":    {"$SYS.SERVER.*.STATSZ", "unused", "cannot be disconnected"},
		"answers":          {"_INBOX.muster.>", "unused", "cannot be disconnected"},
		"max_payload":      {"max_payload: 8388608", "max_payload: 65536", "max_payload is 65536"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newServer(t, func(text string) string {
				edited := strings.Replace(text, tt.from, tt.to, 1)
				if edited == text {
					t.Fatalf("no %q in the configuration", tt.from)
				}
				return edited
			})
			e, err := broker.NewExternal(broker.ExternalConfig{URLs: o.url, Keys: o.keys, Gate: o.config(t).Gate})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := e.Start(ctx); !errors.Is(err, broker.ErrMisconfigured) ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("Start = %v, want %v: %q", err, broker.ErrMisconfigured, tt.want)
			}
		})
	}
}

// The provisioner has another xkey than the server.
func TestUnreadableCalloutIsReported(t *testing.T) {
	t.Parallel()
	o := newServer(t, nil)
	keys := o.keys
	other, err := broker.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	keys.XKey = other.XKey
	wrong := o.provisioner(t, keys, o.url)
	if err := wrong.CalloutError(); err != nil {
		t.Errorf("before a request: %v", err)
	}
	nc, err := nats.Connect(o.url, nats.Token(goodToken), nats.Name(strings.Repeat("A", 22)), nats.NoReconnect(),
		nats.Timeout(patience))
	if err == nil {
		nc.Close()
		t.Error("a provisioner that cannot read what a node presents admits it")
	}
	eventually(t, "an unreadable request", func() bool {
		err := wrong.CalloutError()
		return err != nil && strings.Contains(err.Error(), "another xkey than broker.callout.xkey")
	})
}
