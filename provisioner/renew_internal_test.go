package provisioner

import (
	"errors"
	"slices"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner/ca"
)

// TestClassifyRenewal covers each rule on both sides of its boundary.
func TestClassifyRenewal(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const life = 30 * time.Hour
	// issued has left of its life to go.
	issued := func(serial, key string, left time.Duration) *Issued {
		return &Issued{
			Serial:    serial,
			KeyHash:   key,
			NotBefore: now.Add(left - life - ca.Backdate),
			NotAfter:  now.Add(left),
		}
	}
	const young, due, dead = life/3 + 1, life / 3, 0
	record := func(s State, current, next *Issued, lineage ...string) *Record {
		return &Record{State: s, Current: current, Next: next, Lineage: lineage}
	}
	provisioned := record(StateProvisioned, issued("1", "a", due), nil, "old", "a")
	fresh := record(StateProvisioned, issued("1", "a", young), nil, "a")
	offered := record(StateProvisioned, issued("1", "a", due), issued("2", "b", young), "a", "b")
	// b was admitted by a grant
	taken := record(StateProvisioned, issued("1", "a", young), issued("2", "b", young), "b")
	tests := map[string]struct {
		record         *Record
		vouching, asks string
		want           Reason
		err            error
	}{
		"never seen": {nil, "a", "b", "", errSession},
		"retired": {record(StateRetired, issued("1", "a", young), nil, "a"), "a", "b",
			"", errSession},
		"revoked": {record(StateRevoked, issued("1", "a", young), nil, "a"), "a", "b",
			"", errRevoked},
		"revoked, what it has": {record(StateRevoked, issued("1", "a", young), nil, "a"), "a", "a",
			"", errRevoked},
		"by a stranger":     {provisioned, "x", "b", "", errSession},
		"without a key":     {provisioned, "", "b", "", errSession},
		"by an earlier key": {provisioned, "old", "b", "", errSession},
		"by a key that has expired": {record(StateProvisioned, issued("1", "a", dead), nil, "a"), "a", "b",
			"", errSession},

		"to a new key":                                {provisioned, "a", "b", ReasonRenew, nil},
		"to a new key, early":                         {fresh, "a", "b", ReasonRenew, nil},
		"to an earlier key":                           {provisioned, "a", "old", ReasonRenew, nil},
		"to the key that was offered: a lost reply":   {offered, "a", "b", ReasonReplay, nil},
		"to the key that was offered, by itself":      {offered, "b", "b", ReasonReplay, nil},
		"to a third key, in place of the offered one": {offered, "a", "c", ReasonRenew, nil},
		"to a third key, by the offered one":          {offered, "b", "c", ReasonRenew, nil},
		"back to the current key, by the offered one": {offered, "b", "a", ReasonReplay, nil},
		"before the first confirmation": {record(StateEnrolled, nil, issued("1", "a", due), "a"), "a",
			"b", ReasonRenew, nil},
		"by the offered key when the other has ended": {record(StateProvisioned, issued("1", "a", dead),
			issued("2", "a", due), "a"), "a", "b", ReasonRenew, nil},
		"a lost reply, asked for again when it is due": {
			record(StateProvisioned, issued("1", "a", young), issued("2", "b", due), "a", "b"), "a",
			"b", ReasonReplay, nil},

		"the same key before two thirds of its life":  {fresh, "a", "a", ReasonReplay, nil},
		"the same key from two thirds of its life on": {provisioned, "a", "a", ReasonRenew, nil},
		"the same key, a lost reply": {record(StateProvisioned, issued("1", "a", due),
			issued("2", "a", young), "a"), "a", "a", ReasonReplay, nil},
		"the same key offered with other files, due": {record(StateProvisioned, issued("1", "a", due),
			issued("1", "a", due), "a"), "a", "a", ReasonRenew, nil},
		"another key while either of two may be held": {record(StateProvisioned, issued("1", "a", due),
			issued("2", "a", young), "a"), "a", "b", "", errUnconfirmed},
		"another key, one certificate offered again": {record(StateProvisioned, issued("1", "a", due),
			issued("1", "a", due), "a"), "a", "b", ReasonRenew, nil},

		"by the machine that a grant replaced":     {taken, "a", "c", "", errTaken},
		"to the key that a grant replaced":         {taken, "b", "a", ReasonRenew, nil},
		"by the machine that a grant let in":       {taken, "b", "c", ReasonRenew, nil},
		"what it has, by the one that is replaced": {taken, "a", "a", "", errTaken},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := classifyRenewal(tt.record, claim{
				identity:  "web1.example.net",
				keyHash:   tt.asks,
				vouching:  tt.vouching,
				requested: now,
			})
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Fatalf("classifyRenewal = %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
			if got != ReasonRenew {
				return
			}
			// The vouching certificate stays live, even if the node never learns of the new one.
			a := &attempt{
				proof: proof{
					Provisioner: new(Provisioner),
					vouching:    tt.vouching,
					renewal:     true,
					token:       &jwt.Verified{},
					request:     &wire.EnrollRequest{},
				},
				findings: findings{reason: got, record: tt.record, decision: &policies.Decision{}},
			}
			after := a.next(now, &Issued{Serial: "new", KeyHash: tt.asks, NotAfter: now.Add(life)})
			for _, i := range []*Issued{tt.record.Current, tt.record.Next} {
				held := i.live(now) && i.KeyHash == tt.vouching
				if held && !slices.Contains(after.Live(now), i.Serial) {
					t.Errorf("certificate %s, which the node may hold, is not live any more: %v", i.Serial,
						after.Live(now))
				}
			}
			if !slices.Contains(after.Live(now), "new") || len(after.Live(now)) > 2 || after.State != StateProvisioned {
				t.Errorf("after the renewal %s, live %v", after.State, after.Live(now))
			}
		})
	}
}
