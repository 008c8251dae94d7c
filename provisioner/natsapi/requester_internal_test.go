package natsapi

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestQuickInfoLeavesTheRest has headers that the broker never writes.
func TestQuickInfoLeavesTheRest(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]bool{
		`{"acc":"FLEET","user":"web1.example.net","host":"192.0.2.1","id":7}`: true, `{}`: true, ``: false, `{`: false, `[]`: false,
		`{"host":"a","host":"b"}`: false, `{"host":"a}`: false, `{ "host":"a"}`: false, `{"x":{"host":"a"}}`: false, `{"host":"\u0061"}`: false,
	} {
		if _, got := quickInfo(header); got != want {
			t.Errorf("%s: %v, want %v", header, got, want)
		}
	}
}

// BenchmarkNewCall is what it costs to know who asks.
func BenchmarkNewCall(b *testing.B) {
	start := time.Now()
	header, err := json.Marshal(server.ClientInfo{Start: &start, Host: "127.0.0.1", ID: 4711, Account: "PROVISIONING", User: "provisioning", Name: "0123456789012345678901",
		Lang: "go", Version: "1.52.0", RTT: 12345, Server: "broker", Kind: "Client", ClientType: "nats"})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("quick", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			parseInfo(string(header))
		}
	})
	b.Run("json", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var info requestInfo
			_ = json.Unmarshal(header, &info)
		}
	})
}
