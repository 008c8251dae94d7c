package provisioner

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
)

// FuzzRecord checks that no record that a store could hold panics the rules
// that read it, that a damaged one admits nobody, and that a good one is the
// same once written again.
func FuzzRecord(f *testing.F) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	issued := &Issued{Serial: "0a", KeyHash: "k1", DER: []byte{0x30, 0}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), Digest: "d", OfferedAt: now}
	for _, r := range []*Record{
		{Schema: RecordSchema, Identity: "web1.example.net", State: StateEnrolled, Next: issued, Lineage: []string{"k1"}, Attempt: "a", UpdatedAt: now},
		{Schema: RecordSchema, Identity: "web1.example.net", State: StateProvisioned, Current: issued, Next: issued, Lineage: []string{"k0", "k1"}, Attempt: "a", Grant: "g"},
		{Schema: RecordSchema, Identity: "web1.example.net", State: StateRevoked, Current: issued, Attempt: "a"},
		{Schema: RecordSchema, Identity: "web1.example.net", State: StateRetired, Attempt: "a"},
	} {
		b, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"stream":"MUSTER_EVENTS","seq":3}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Record
		if json.Unmarshal(b, &r) != nil || r.Check() != nil {
			return
		}
		live := r.Live(now)
		if len(live) > 2 || (r.State == StateRevoked || r.State == StateRetired) && len(live) > 0 {
			t.Fatalf("%s, and live: %v", r.State, live)
		}
		for _, key := range append(slices.Clone(r.Lineage), "", "k1") {
			reason, err := classify(&r, claim{identity: r.Identity, keyHash: key, requested: now, grant: &Grant{ID: "g2", ExpiresAt: now.Add(time.Hour)}})
			if (reason == "") != (err != nil) {
				t.Fatalf("classify = %q, %v", reason, err)
			}
			if r.State == StateRevoked && err == nil {
				t.Fatalf("revoked, and %q is let in as %s", key, reason)
			}
			if reason == ReasonReplay && len(live) == 0 {
				t.Fatal("a replay of nothing")
			}
		}
		for _, i := range []*Issued{r.Current, r.Next} {
			if i != nil {
				_, _, _ = confirmed(&r, &wire.Applied{Identity: string(r.Identity), Serial: i.Serial, Digest: i.Digest})
			}
		}
		next := r
		next.remember("new")
		if len(next.Lineage) > MaxLineage {
			t.Fatalf("a lineage of %d keys", len(next.Lineage))
		}
		again, err := json.Marshal(&r)
		if err != nil {
			return // a year beyond 9999: RFC 3339 has none, and no record of ours
		}
		var r2 Record
		if err := json.Unmarshal(again, &r2); err != nil {
			t.Fatalf("our own encoding is refused: %v", err)
		}
		if twice, err := json.Marshal(&r2); err != nil || !bytes.Equal(again, twice) {
			t.Fatalf("round trip: %s became %s, %v", again, twice, err)
		}
	})
}

// FuzzRefusalEvent checks that what a stranger calls itself never becomes
// another node's name by being cut.
func FuzzRefusalEvent(f *testing.F) {
	f.Add("web1.example.net")
	f.Add(strings.Repeat(strings.Repeat("a", 62)+".", 4) + "aa")
	f.Fuzz(func(t *testing.T, name string) {
		e := RefusalEvent(refuse(name, wire.CodeIdentityInvalid, nil), time.Time{}, "")
		if len(e.Node) > wire.MaxIdentityBytes {
			t.Fatalf("%d bytes", len(e.Node))
		}
		if id, err := wire.ParseIdentity(e.Node); err == nil && string(id) != name {
			t.Fatalf("%q is reported as %s", name, id)
		}
		if e.Type != EventAttempt || !reflect.DeepEqual(e.Code, wire.CodeIdentityInvalid) {
			t.Fatalf("event %+v", e)
		}
	})
}
