package provisioner

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/orders"

	"muster/internal/wire"
	"muster/jwt"
)

// TestClassify covers each rule on both sides of its boundary.
func TestClassify(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	issued := func(key string, left time.Duration) *Issued { return &Issued{KeyHash: key, NotAfter: now.Add(left)} }
	live, dead := time.Nanosecond, time.Duration(0) // not after its end, and not at it
	record := func(s State, current, next *Issued, lineage ...string) *Record {
		return &Record{State: s, Current: current, Next: next, Lineage: lineage, Grant: "spent"}
	}
	provisioned := record(StateProvisioned, issued("a", live), nil, "old", "a")
	offered := record(StateProvisioned, issued("a", live), issued("b", live), "a", "b")
	taken := record(StateProvisioned, issued("a", live), issued("b", live), "b") // b was admitted by a grant
	grant := func(edit func(*orders.Grant)) *orders.Grant {
		g := &orders.Grant{ID: "g", ExpiresAt: now.Add(live)}
		if edit != nil {
			edit(g)
		}
		return g
	}
	named := func(r *Record) *Record { r.Identity = "web1.example.net"; return r }
	offeredAt := func(at time.Time, key string) *Issued { i := issued(key, live); i.OfferedAt = at; return i }
	begins := func(key string, in time.Duration) *Issued {
		i := issued(key, live)
		i.NotBefore = now.Add(in)
		return i
	}
	fresh := record(StateProvisioned, offeredAt(now, "a"), nil, "a")
	once := func(signed time.Time, uses int, identities ...wire.Pattern) *jwt.Verified {
		return &jwt.Verified{Claims: jwt.Claims{IssuedAt: signed},
			Limits: jwt.Limits{Uses: uses, Identities: identities}}
	}
	for _, r := range []*Record{provisioned, offered, taken, fresh} {
		r.Identity = "web1.example.net"
	}
	const web1 wire.Pattern = "web1.example.net"
	next := now.Add(time.Second)
	tests := map[string]struct {
		record *Record
		claim  claim
		want   Reason
		err    error
	}{
		"never seen":               {nil, claim{keyHash: "a"}, ReasonNew, nil},
		"never seen, with a grant": {nil, claim{keyHash: "a", grant: grant(nil)}, ReasonNew, nil},
		"retired, any key": {record(StateRetired, nil, nil, "a"), claim{keyHash: "b"},
			ReasonNew, nil},
		"retired, its own live key": {record(StateRetired, issued("a", live), nil, "a"),
			claim{keyHash: "a"}, ReasonNew, nil},
		"revoked, its own live key": {record(StateRevoked, issued("a", live), nil, "a"),
			claim{keyHash: "a"}, "", errRevoked},
		"revoked, the key it was last offered": {record(StateRevoked, nil, issued("a", live), "a"),
			claim{keyHash: "a"}, "", errRevoked},
		"revoked, a key of the lineage": {record(StateRevoked, nil, nil, "a"), claim{keyHash: "a"}, "", errRevoked},
		"revoked, vouched for": {record(StateRevoked, nil, nil, "a"), claim{keyHash: "b", vouching: "a"},
			"", errRevoked},
		"revoked, with a grant": {record(StateRevoked, nil, nil, "a"), claim{keyHash: "b", grant: grant(nil)},
			"", errRevoked},

		"the current key": {provisioned, claim{keyHash: "a"}, ReasonReplay, nil},
		"the key that was offered": {record(StateEnrolled, nil, issued("a", live), "a"), claim{keyHash: "a"},
			ReasonReplay, nil},
		"the current key beside an offer":    {offered, claim{keyHash: "a"}, ReasonReplay, nil},
		"the offered key beside the current": {offered, claim{keyHash: "b"}, ReasonReplay, nil},
		"a replay, vouched for":              {provisioned, claim{keyHash: "a", vouching: "old"}, ReasonReplay, nil},

		"the current key at its certificate's end": {record(StateProvisioned, issued("a", dead), nil, "a"),
			claim{keyHash: "a"}, ReasonContinue, nil},
		"the offered key at its certificate's end": {record(StateEnrolled, nil, issued("a", dead), "a"),
			claim{keyHash: "a"}, ReasonContinue, nil},
		"the current key before its certificate": {record(StateProvisioned, begins("a", time.Second), nil, "a"),
			claim{keyHash: "a"}, ReasonContinue, nil},
		"the current key beside an offer to come": {record(StateProvisioned, issued("a", live),
			begins("a", time.Second), "a"), claim{keyHash: "a"}, ReasonReplay, nil},
		"an earlier key": {provisioned, claim{keyHash: "old"}, ReasonContinue, nil},
		"an earlier key, vouched for": {provisioned, claim{keyHash: "old", vouching: "a"},
			ReasonContinue, nil},
		"the replaced key once it has expired": {record(StateProvisioned, issued("a", dead), issued("b", live), "b"),
			claim{keyHash: "a"}, "", errTaken},

		"another key, a token signed after": {fresh, claim{keyHash: "b", token: once(next, 1, web1)},
			ReasonOneTimeToken, nil},
		"another key, a token signed then": {fresh, claim{keyHash: "b", token: once(now, 1, web1)},
			"", errTaken},
		"another key, a token signed in that second": {fresh, claim{keyHash: "b", token: once(next.Add(-1), 1, web1)},
			"", errTaken},
		"another key, a token signed before": {fresh,
			claim{keyHash: "b", token: once(now.Add(-time.Second), 1, web1)}, "", errTaken},
		"another key, a token of a minute to come": {fresh,
			claim{keyHash: "b", token: once(now.Add(jwt.NotBeforeLeeway), 1, web1)}, ReasonOneTimeToken, nil},
		"another key, a token of more than a minute": {fresh,
			claim{keyHash: "b", token: once(now.Add(jwt.NotBeforeLeeway+1), 1, web1)}, "", errTaken},
		"another key, a token for two uses": {fresh, claim{keyHash: "b", token: once(next, 2, web1)},
			"", errTaken},
		"another key, a token for any number": {fresh, claim{keyHash: "b", token: once(next, 0, web1)},
			"", errTaken},
		"another key, a token for anybody": {fresh, claim{keyHash: "b", token: once(next, 1)}, "", errTaken},
		"another key, a token for a pattern": {fresh,
			claim{keyHash: "b", token: once(next, 1, "web1.example.*")}, "", errTaken},
		"another key, a token for two": {fresh, claim{keyHash: "b", token: once(next, 1, web1, web1)},
			"", errTaken},
		"another key, a token for another": {fresh,
			claim{keyHash: "b", token: once(next, 1, "web2.example.net")}, "", errTaken},
		"revoked, with a token signed after": {record(StateRevoked, offeredAt(now, "a"), nil, "a"),
			claim{keyHash: "b", token: once(next, 1, web1)}, "", errRevoked},
		"retired, with a token signed before": {record(StateRetired, nil, nil, "a"),
			claim{keyHash: "b", token: once(time.Time{}, 1, web1)}, ReasonNew, nil},
		"the key that is there, a token signed after": {fresh, claim{keyHash: "a", token: once(next, 1, web1)},
			ReasonReplay, nil},
		"another key, vouched for, and such a token": {fresh,
			claim{keyHash: "b", vouching: "a", token: once(next, 1, web1)}, ReasonContinuity, nil},
		"another key, such a token and a grant": {fresh,
			claim{keyHash: "b", token: once(next, 1, web1), grant: grant(nil)}, ReasonOneTimeToken, nil},
		"another key, a late token and a grant": {fresh,
			claim{keyHash: "b", token: once(now, 1, web1), grant: grant(nil)}, ReasonGrant, nil},
		"only an offer, a token signed after": {named(record(StateEnrolled, nil, offeredAt(now, "a"), "a")),
			claim{keyHash: "b", token: once(next, 1, web1)}, ReasonOneTimeToken, nil},
		"only an offer, a token signed then": {named(record(StateEnrolled, nil, offeredAt(now, "a"), "a")),
			claim{keyHash: "b", token: once(now, 1, web1)}, "", errTaken},
		"a token signed between current and offer": {named(record(StateProvisioned,
			offeredAt(now.Add(-time.Hour), "a"), offeredAt(now, "c"), "c")),
			claim{keyHash: "b", token: once(now.Add(-time.Minute), 1, web1)}, "", errTaken},
		"another key": {provisioned, claim{keyHash: "c"}, "", errTaken},
		"another key after the end of all": {record(StateProvisioned, issued("a", dead), nil, "a"),
			claim{keyHash: "c"}, "", errTaken},
		"another key, vouched for by the newest": {provisioned, claim{keyHash: "c", vouching: "a"},
			ReasonContinuity, nil},
		"another key, vouched for by an early one": {provisioned, claim{keyHash: "c", vouching: "old"},
			ReasonContinuity, nil},
		"another key, vouched for by a stranger": {provisioned, claim{keyHash: "c", vouching: "c"}, "", errTaken},
		"vouched for by a live key that lost it": {taken, claim{keyHash: "c", vouching: "a"}, "", errTaken},

		"a grant": {provisioned, claim{keyHash: "c", grant: grant(nil)}, ReasonGrant, nil},
		"a grant beside continuity": {provisioned, claim{keyHash: "c", vouching: "a", grant: grant(nil)},
			ReasonContinuity, nil},
		"a grant for this key": {provisioned,
			claim{keyHash: "c", grant: grant(func(g *orders.Grant) { g.KeyHash = "c" })}, ReasonGrant, nil},
		"a grant for some other key": {provisioned,
			claim{keyHash: "c", grant: grant(func(g *orders.Grant) { g.KeyHash = "d" })}, "", errTaken},
		"a grant at its end": {provisioned,
			claim{keyHash: "c", grant: grant(func(g *orders.Grant) { g.ExpiresAt = now })}, "", errTaken},
		"a grant that has been spent": {provisioned,
			claim{keyHash: "c", grant: grant(func(g *orders.Grant) { g.ID = "spent" })}, "", errTaken},
		"a grant without an id": {provisioned,
			claim{keyHash: "c", grant: grant(func(g *orders.Grant) { g.ID = "" })}, "", errTaken},
		"a key that needs no grant": {provisioned, claim{keyHash: "a", grant: grant(nil)}, ReasonReplay, nil},
		"a lineage of nothing and none": {record(StateProvisioned, issued("a", live), nil), claim{keyHash: "c"},
			"", errTaken},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.claim.identity, tt.claim.requested = "web1.example.net", now
			got, err := classify(tt.record, tt.claim)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("classify = %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestStatesFollowTheTable(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(doc), "| from | to | by |\n|---|---|---|\n")
	all := []State{StateNone, StateEnrolled, StateProvisioned, StateRevoked, StateRetired, "", "lost"}
	table := map[State][]State{}
	for line := range strings.Lines(text) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			break
		}
		for from := range strings.SplitSeq(strings.TrimPrefix(cells[0], "| "), ", ") {
			table[State(from)] = append(table[State(from)], State(cells[1]))
			if !slices.Contains(all, State(from)) || !slices.Contains(all, State(cells[1])) {
				t.Errorf("no such state: %s", line)
			}
		}
	}
	if len(table) == 0 {
		t.Fatal("docs/architecture.md has no table of states")
	}
	for _, from := range all {
		for _, to := range all {
			if got, want := CanMove(from, to), slices.Contains(table[from], to); got != want {
				t.Errorf("CanMove(%q, %q) = %v, want %v", from, to, got, want)
			}
		}
	}
}

// TestInvalidRecordsAreFound has a valid record of each state, and one edit each that no provisioner makes.
func TestInvalidRecordsAreFound(t *testing.T) {
	t.Parallel()
	good := map[State]Record{
		StateEnrolled: {
			Schema:  RecordSchema,
			State:   StateEnrolled,
			Next:    &Issued{},
			Lineage: []string{"k"},
			Attempt: "a",
		},
		StateProvisioned: {
			Schema:  RecordSchema,
			State:   StateProvisioned,
			Current: &Issued{},
			Next:    &Issued{},
			Lineage: []string{"k"},
			Attempt: "a",
		},
		StateRevoked: {Schema: RecordSchema, State: StateRevoked, Attempt: "a"},
		StateRetired: {Schema: RecordSchema, State: StateRetired, Attempt: "a"},
	}
	for s, r := range good {
		if err := r.Check(); err != nil {
			t.Errorf("a good record that is %s: %v", s, err)
		}
	}
	tests := map[string]struct {
		of   State
		edit func(*Record)
	}{
		"an older schema":               {StateEnrolled, func(r *Record) { r.Schema = 0 }},
		"a later schema":                {StateEnrolled, func(r *Record) { r.Schema++ }},
		"no state":                      {StateRetired, func(r *Record) { r.State = "" }},
		"state none":                    {StateRetired, func(r *Record) { r.State = StateNone }},
		"a state from the future":       {StateRetired, func(r *Record) { r.State = "paused" }},
		"enrolled without an offer":     {StateEnrolled, func(r *Record) { r.Next = nil }},
		"enrolled and confirmed":        {StateEnrolled, func(r *Record) { r.Current = r.Next }},
		"provisioned by no certificate": {StateProvisioned, func(r *Record) { r.Current = nil }},
		"an offer without a lineage":    {StateEnrolled, func(r *Record) { r.Lineage = nil }},
		"without an attempt":            {StateProvisioned, func(r *Record) { r.Attempt = "" }},
	}
	for name, tt := range tests {
		r := good[tt.of]
		tt.edit(&r)
		if r.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestLiveCertificates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	issued := func(serial string, left time.Duration) *Issued {
		return &Issued{Serial: serial, NotAfter: now.Add(left)}
	}
	tests := map[string]struct {
		record *Record
		want   []string
	}{
		"none":      {nil, nil},
		"offered":   {&Record{State: StateEnrolled, Next: issued("1", 1)}, []string{"1"}},
		"confirmed": {&Record{State: StateProvisioned, Current: issued("1", 1)}, []string{"1"}},
		"both": {&Record{State: StateProvisioned, Current: issued("1", 1), Next: issued("2", 1)},
			[]string{"1", "2"}},
		"one, with another digest": {&Record{State: StateProvisioned, Current: issued("1", 1), Next: issued("1", 1)},
			[]string{"1"}},
		"confirmed, at its end": {&Record{State: StateProvisioned, Current: issued("1", 0), Next: issued("2", 1)},
			[]string{"2"}},
		"offered, at its end": {&Record{State: StateProvisioned, Current: issued("1", 1), Next: issued("2", 0)},
			[]string{"1"}},
		"revoked with certificates": {&Record{State: StateRevoked, Current: issued("1", 1), Next: issued("2", 1)}, nil},
		"retired with certificates": {&Record{State: StateRetired, Current: issued("1", 1), Next: issued("2", 1)}, nil},
	}
	for name, tt := range tests {
		if got := tt.record.Live(now); !slices.Equal(got, tt.want) {
			t.Errorf("%s: live are %v, want %v", name, got, tt.want)
		}
	}
}

func TestLineageKeepsTheNewestKeys(t *testing.T) {
	t.Parallel()
	r := &Record{}
	for i := range MaxLineage + 5 {
		r.addKey(string(rune('A' + i)))
		r.addKey("kept")
	}
	if len(r.Lineage) != MaxLineage || r.Lineage[MaxLineage-1] != "kept" ||
		r.Lineage[MaxLineage-2] != string(rune('A'+MaxLineage+4)) {
		t.Errorf("lineage = %q, want the newest %d, each once", r.Lineage, MaxLineage)
	}
	if distinct := slices.Compact(slices.Sorted(slices.Values(r.Lineage))); len(distinct) != MaxLineage {
		t.Errorf("%d distinct keys in %q, want %d", len(distinct), r.Lineage, MaxLineage)
	}
	before := slices.Clone(r.Lineage)
	copied := *r
	copied.addKey("new")
	if !slices.Equal(r.Lineage, before) {
		t.Error("a key remembered by a copy changed the record that it was made of")
	}
}

func TestGrantApplies(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	open, over := &orders.Grant{ID: "g", ExpiresAt: now.Add(1)}, &orders.Grant{ID: "g", ExpiresAt: now}
	owned := &Record{State: StateProvisioned}
	tests := map[string]struct {
		grant  *orders.Grant
		record *Record
		want   bool
	}{
		"a name in use":      {open, owned, true},
		"enrolled":           {open, &Record{State: StateEnrolled}, true},
		"spent":              {open, &Record{State: StateProvisioned, Grant: "g"}, false},
		"of another machine": {open, &Record{State: StateProvisioned, OwnedSince: now}, false},
		"at its end":         {over, owned, false},
		"revoked":            {open, &Record{State: StateRevoked}, false},
		"a retired name":     {open, &Record{State: StateRetired}, false},
		"an unknown name":    {open, nil, false},
		"no grant":           {nil, owned, false},
		"neither":            {nil, nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tt.record.GrantApplies(tt.grant, now); got != tt.want {
				t.Errorf("Stands = %v, want %v", got, tt.want)
			}
		})
	}
}
