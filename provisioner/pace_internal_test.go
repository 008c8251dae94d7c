package provisioner

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"muster/provisioner/trust"
)

func TestTooSoon(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	issued := func(serial, key string, age, left time.Duration) *Issued {
		return &Issued{Serial: serial, KeyHash: key, OfferedAt: now.Add(-age), NotAfter: now.Add(left)}
	}
	const day = 24 * time.Hour
	offered := func(age, left time.Duration) *Record {
		return &Record{State: StateProvisioned, Current: issued("1", "a", day, day), Next: issued("2", "b", age, left)}
	}
	full := func(n int, left time.Duration, current *Issued) *Record {
		r := &Record{State: StateProvisioned, Current: current}
		for i := range n {
			r.Superseded = append(r.Superseded,
				trust.RevokedCertificate{Serial: fmt.Sprint("s", i), NotAfter: now.Add(left)})
		}
		return r
	}
	live, over := issued("1", "a", day, day), issued("1", "a", day, 0)
	tests := map[string]struct {
		record         *Record
		reason         Reason
		vouching, asks string
		revoked        string
		want           time.Duration // 0: at once
	}{
		"another key, at once": {offered(0, day), ReasonRenew, "a", "c", "", minOfferAge},
		"another key, by an offer from the future": {offered(-time.Second, day), ReasonRenew, "a", "c",
			"", minOfferAge - time.Second},
		"another key, just before": {offered(minOfferAge-time.Second, day), ReasonRenew, "a", "c",
			"", time.Second},
		"another key, in time":                   {offered(minOfferAge, day), ReasonRenew, "a", "c", "", 0},
		"another key, after an offer that ended": {offered(0, 0), ReasonRenew, "a", "c", "", 0},
		"another key, by the offered one":        {offered(0, day), ReasonRenew, "b", "c", "", 0},
		"vouched for by the offered one":         {offered(0, day), ReasonContinuity, "b", "c", "", minOfferAge},
		"vouched for":                            {offered(0, day), ReasonContinuity, "a", "c", "", minOfferAge},
		"an earlier key":                         {offered(0, day), ReasonContinue, "", "old", "", minOfferAge},
		"the key that was offered":               {offered(0, day), ReasonRenew, "a", "b", "", 0},
		"what is live":                           {offered(0, day), ReasonReplay, "", "a", "", 0},
		"a grant":                                {offered(0, day), ReasonGrant, "", "c", "", 0},
		"a one-time token":                       {offered(0, day), ReasonOneTimeToken, "", "c", "", 0},
		"never seen":                             {nil, ReasonNew, "", "c", "", 0},

		"as many as there may be": {full(maxSuperseded, day, live), ReasonRenew, "a", "c",
			"", maxBusyRetry},
		"the first expires soon": {full(maxSuperseded, time.Second, live), ReasonRenew, "a", "c",
			"", time.Second},
		"one less":                                {full(maxSuperseded-1, day, live), ReasonRenew, "a", "c", "", 0},
		"as many, expired":                        {full(maxSuperseded, 0, live), ReasonRenew, "a", "c", "", 0},
		"as many, one of them revoked":            {full(maxSuperseded, day, live), ReasonRenew, "a", "c", "s7", 0},
		"as many, a grant":                        {full(maxSuperseded, day, live), ReasonGrant, "", "c", "", 0},
		"as many, and no live certificate to use": {full(maxSuperseded, day, over), ReasonContinue, "", "a", "", 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tt.record.tooSoon(tt.reason, claim{keyHash: tt.asks, vouching: tt.vouching, requested: now},
				func(s string) bool { return s == tt.revoked })
			if got != tt.want || (err != nil) != (tt.want > 0) {
				t.Errorf("tooSoon = %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

func TestSupersededCertificatesAreKept(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	issued := func(serial string, left time.Duration) *Issued {
		return &Issued{Serial: serial, NotAfter: now.Add(left)}
	}
	was := []trust.RevokedCertificate{{Serial: "old", NotAfter: now.Add(time.Second)},
		{Serial: "expired", NotAfter: now}}
	tests := map[string]struct {
		before *Record
		after  Record
		want   []string
	}{
		"the first": {nil, Record{Next: issued("1", 1)}, nil},
		"a confirmation": {&Record{Current: issued("1", 1), Next: issued("2", 1), Superseded: was},
			Record{Current: issued("2", 1)}, []string{"old", "1"}},
		"another offer": {&Record{Current: issued("1", 1), Next: issued("2", 1)},
			Record{Current: issued("1", 1), Next: issued("3", 1)}, []string{"2"}},
		"the same again": {&Record{Current: issued("1", 1), Next: issued("2", 1)},
			Record{Current: issued("1", 1), Next: issued("1", 1)}, []string{"2"}},
		"from the offer on": {&Record{Current: issued("1", 1), Next: issued("2", 1)},
			Record{Current: issued("2", 1), Next: issued("3", 1)}, []string{"1"}},
		"in both places": {&Record{Current: issued("1", 1), Next: issued("1", 1)}, Record{}, []string{"1"}},
		"expired": {&Record{Current: issued("1", 0), Next: issued("2", 1)},
			Record{Current: issued("2", 1)}, nil},
		"a retirement": {&Record{Current: issued("1", 1), Next: issued("2", 1), Superseded: was}, Record{},
			[]string{"old", "1", "2"}},
		"after it": {&Record{Superseded: was}, Record{Next: issued("1", 1)}, []string{"old"}},
		"one that came back in": {&Record{Superseded: was, Current: issued("1", 1)},
			Record{Current: issued("old", 1), Next: issued("1", 1)}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.after.keepSuperseded(tt.before, now)
			var got []string
			for _, c := range tt.after.Superseded {
				got = append(got, c.Serial)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("superseded %v, want %v", got, tt.want)
			}
		})
	}
}

func TestLineageHoldsTheLiveKeys(t *testing.T) {
	t.Parallel()
	r := &Record{Current: &Issued{KeyHash: "current"}, Lineage: []string{"vouching", "oldest", "current"}}
	for i := range 3 * MaxLineage {
		key := fmt.Sprint("k", i)
		r.Next = &Issued{KeyHash: key}
		r.addKey(key, "vouching")
	}
	if len(r.Lineage) != MaxLineage || r.Lineage[0] != "vouching" || r.Lineage[1] != "current" ||
		r.Lineage[2] != fmt.Sprint("k", 3*MaxLineage-MaxLineage+2) {
		t.Errorf("lineage = %v", r.Lineage)
	}
}
