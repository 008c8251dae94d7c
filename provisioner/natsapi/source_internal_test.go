package natsapi

import (
	"reflect"
	"testing"

	"github.com/nats-io/nats.go"

	"muster/internal/wire"
	"muster/provisioner"
)

// TestOnlyTheFleetHasNodes: a user name is an identity in the fleet's account only.
func TestOnlyTheFleetHasNodes(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		header string
		want   provisioner.Source
	}{
		"a node": {`{"acc":"FLEET","user":"web1.example.net","host":"192.0.2.1","id":7}`,
			provisioner.Source{Address: "192.0.2.1", Node: "web1.example.net"}},
		"a machine with a token": {`{"acc":"PROVISIONING","user":"provisioning","host":"192.0.2.1"}`,
			provisioner.Source{Address: "192.0.2.1"}},
		"a provisioner": {`{"acc":"MUSTER","user":"web1.example.net","host":"192.0.2.1"}`,
			provisioner.Source{Address: "192.0.2.1"}},
		"an account of like name":   {`{"acc":"fleet","user":"web1.example.net"}`, provisioner.Source{}},
		"nothing, from our account": {"", provisioner.Source{}},
	}
	twice := nats.NewMsg(wire.SubjectRenew)
	twice.Header.Add("Nats-Request-Info", `{"acc":"FLEET","user":"web1.example.net","host":"198.51.100.7"}`)
	twice.Header.Add("Nats-Request-Info", `{"acc":"PROVISIONING","user":"provisioning","host":"192.0.2.1"}`)
	if c := newCall(twice); !c.forged || c.user != "" || !reflect.DeepEqual(c.source, provisioner.Source{}) {
		t.Errorf("with a header of its own: %+v", c)
	}
	for name, tt := range tests {
		m := nats.NewMsg(wire.SubjectRenew)
		if tt.header != "" {
			m.Header.Set("Nats-Request-Info", tt.header)
		}
		if got := newCall(m).source; !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
