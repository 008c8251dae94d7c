package natsapi

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// FuzzParseInfo has the broker say anything of a requester, and reads it with
// and without encoding/json.
func FuzzParseInfo(f *testing.F) {
	for _, s := range []string{"", "web1.example.net", `","host":"198.51.100.7`, `{"host":"x"}`, `"host":"`, `\","host":"x`, `\`, "<é\u2028>", `"}`, "\x00\xff"} {
		f.Add("192.0.2.1", "FLEET", "user", s, "name")
		f.Add("192.0.2.1", "PROVISIONING", s, "nodes", s)
		f.Add(s, s, s, s, s)
	}
	f.Fuzz(func(t *testing.T, host, account, user, name, tag string) {
		start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		said := server.ClientInfo{Start: &start, Host: host, ID: 7, Account: account, User: user, Name: name, Version: name, Tags: []string{tag, name}, NameTag: tag,
			Alternates: []string{name}, Kind: "Client", ClientType: "nats", Nonce: tag, Reply: name}
		header, err := json.Marshal(said)
		if err != nil {
			t.Fatal(err)
		}
		var want requestInfo
		if err := json.Unmarshal(header, &want); err != nil {
			t.Fatal(err)
		}
		if got := parseInfo(string(header)); got != want {
			t.Fatalf("%s is %+v, want %+v", header, got, want)
		}
	})
}

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
