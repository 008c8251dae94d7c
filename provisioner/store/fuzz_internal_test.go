package store

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"muster/provisioner"
)

// FuzzEventSubject checks that whatever a stranger claims to be, the event about
// it goes to one subject of the right stream.
func FuzzEventSubject(f *testing.F) {
	for _, s := range []string{"", "web1.example.net", "a.*", ">", "a b", "../x", "_", "web1_example_net"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, node string, attempt bool) {
		e, tokens, prefix := provisioner.Event{Type: provisioner.EventEnrolled, Node: node}, 5, subjectEvent
		if attempt {
			e.Type, tokens, prefix = provisioner.EventAttempt, 4, subjectAttempt
		}
		subject := eventSubject(e)
		if !strings.HasPrefix(subject, prefix) || strings.Count(subject, ".") != tokens-1 || strings.ContainsAny(subject, "*> \t\r\n\x00") || strings.Contains(subject, "..") {
			t.Fatalf("%q leads to the subject %q", node, subject)
		}
	})
}

// FuzzDecodeClaims checks that no entry that a log could hold panics its reader,
// that there is never one beside an error, and that a good one is the same once
// written again.
func FuzzDecodeClaims(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"stream":"MUSTER_EVENTS","seq":3}`))
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	b, err := json.Marshal(&provisioner.ClaimEntry{
		Schema: provisioner.ClaimSchema, Token: &provisioner.TokenInfo{},
		Claims:   []provisioner.TokenClaim{{Key: "k", Identity: "web1.example.net", Attempt: "a", At: at}},
		Releases: []provisioner.TokenRelease{{Key: "k", Identity: "web1.example.net", All: true, At: at, By: "anna"}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeClaims(b)
		if err != nil {
			if e != nil {
				t.Fatal("an entry beside the error")
			}
			return
		}
		again, err := json.Marshal(e)
		if err != nil {
			return // a year beyond 9999, which no entry of ours has
		}
		e2, err := decodeClaims(again)
		if err != nil {
			t.Fatalf("our own encoding is refused: %v", err)
		}
		if twice, err := json.Marshal(e2); err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("round trip: %s became %s, %v", again, twice, err)
		}
	})
}

// FuzzDecodeRecord checks that a record is taken from its own subject only.
func FuzzDecodeRecord(f *testing.F) {
	f.Add("muster.node.web1_example_net", []byte(`{"schema":1,"identity":"web1.example.net","state":"retired","attempt":"a","lineage":null}`))
	f.Add("muster.node.web2_example_net", []byte(`{"schema":1,"identity":"web1.example.net","state":"retired","attempt":"a"}`))
	f.Add("muster.node.", []byte(`{"stream":"MUSTER_EVENTS","seq":3}`))
	f.Fuzz(func(t *testing.T, subject string, b []byte) {
		r, err := decodeRecord(message{subject: subject, data: b, sequence: 1})
		if err != nil {
			if r != nil {
				t.Fatal("a record beside the error")
			}
			return
		}
		if err := r.Check(); err != nil || subject != "muster.node."+r.Identity.SubjectToken() {
			t.Fatalf("a record of %q from %q: %v", r.Identity, subject, err)
		}
	})
}
