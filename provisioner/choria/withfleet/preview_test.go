package choria_test

import (
	"strings"
	"testing"
	"time"

	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/choria"
)

// `muster policy` finds a set that would lose a Choria server, before a server asks.
func TestPreviewChecksWhatAChoriaServerGets(t *testing.T) {
	t.Parallel()
	gateway := &choria.Settings{Brokers: []string{"broker.example.net:4222"}}
	preview := &provisioner.Preview{Choria: gateway.Preview, MaxTTL: time.Hour}
	for _, tt := range []struct {
		set  map[string]string // nil: neither policy nor template gives one
		want string            // of the error, "" for none
	}{
		{nil, ""},
		{map[string]string{"collectives": "london, mcollective"}, ""},
		{map[string]string{"plugin.choria.middleware_hosts": "elsewhere.example.net:4222"}, "no broker in choria.brokers"},
		{map[string]string{"brokers": "broker.example.net:4222"}, "unknown to Choria servers"},
	} {
		in := &policies.Input{Identity: web1, Source: policies.Source{Protocol: "choria"}}
		decision := &policies.Decision{Allow: true, Configuration: tt.set}
		files, err := preview.Follow(t.Context(), in, decision)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %q", tt.set, err, tt.want)
		}
		main, _, _ := strings.Cut(tt.set["collectives"], ",")
		if got := files.Configuration["main_collective"]; main != "" && got != main {
			t.Errorf("%v: the main collective is %q", tt.set, got)
		}
	}
	muster := &policies.Input{Identity: web1, Source: policies.Source{Protocol: "muster"}}
	if _, err := preview.Follow(t.Context(), muster, &policies.Decision{Allow: true}); err == nil {
		t.Error("muster's agent gets no configuration, and this is not refused")
	}
}
