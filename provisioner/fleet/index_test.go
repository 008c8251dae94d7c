package fleet_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/provisioner/trust"

	"github.com/google/go-cmp/cmp"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/services"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A feed is a log whose records the test writes. What a node's past is read from
// the store's own tests have.
type feed struct {
	fleet.NodeLog
	records chan []byte // nil: that was all for now
	own     chan owned
	done    chan struct{}
	seen    chan struct{} // closed: FollowSeen has said all that it says
	hold    chan struct{} // closed: it may; nil: at once
	since   time.Time     // since when it knows
}

func (f *feed) FollowRecords(ctx context.Context, each func(wire.Identity, []byte, trust.Revision),
	own func(*provisioner.Brief, trust.Revision), current func(error)) error {
	revision := trust.Revision(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case o := <-f.own:
			own(&o.record, o.at)
		case b := <-f.records:
			if b == nil {
				current(nil)
				f.done <- struct{}{}
				continue
			}
			var r struct{ Identity wire.Identity }
			_ = json.Unmarshal(b, &r)
			revision++
			each(r.Identity, b, revision)
		}
	}
}

func (f *feed) Settle() {}

func (f *feed) FollowLastSeen(ctx context.Context, each func(wire.Identity, time.Time), current func(time.Time)) error {
	each("db1.example.net", noon.Add(time.Hour))
	each("never.example.net", noon) // without a record
	if f.hold != nil {
		<-f.hold
	}
	current(f.since)
	close(f.seen)
	<-ctx.Done()
	return nil
}

// owned is a record that this process is said to have written.
type owned struct {
	record provisioner.Brief
	at     trust.Revision
}

// put writes records and returns when the index has them.
func (f *feed) put(t testing.TB, records ...*provisioner.Record) {
	t.Helper()
	for _, r := range records {
		b, err := wire.EncodeJSON(r)
		if err != nil {
			t.Fatal(err)
		}
		f.records <- b
	}
	f.records <- nil
	<-f.done
	<-f.seen
}

// index returns an index that follows a feed until the test ends, and keeps facts.
func index(t testing.TB, facts ...string) (*fleet.Index, *feed) {
	t.Helper()
	f := &feed{}
	return f.index(t, facts...), f
}

// index does the work of index for a feed of which no more than hold, since and told are set.
func (f *feed) index(t testing.TB, facts ...string) *fleet.Index {
	t.Helper()
	f.records, f.own, f.done, f.seen = make(chan []byte), make(chan owned), make(chan struct{}), make(chan struct{})
	x := fleet.NewIndex(f, slog.New(slog.DiscardHandler), facts)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return x
}

// record returns the record of a node that is part of the fleet.
func record(name string, edit func(*provisioner.Record)) *provisioner.Record {
	i := &provisioner.Issued{
		Serial:    "f1e2d3c4b5a69780f1e2d3c4b5a6978",
		KeyHash:   "k",
		DER:       []byte{1},
		NotBefore: noon,
		NotAfter:  noon.Add(720 * time.Hour),
		Digest:    "d1",
		OfferedAt: noon,
	}
	r := &provisioner.Record{
		Schema: provisioner.RecordSchema, Identity: wire.Identity(name), State: provisioner.StateProvisioned,
		Current: i, Lineage: []string{"k"}, Attempt: "a",
		Token: "0f1e2d3c4b5a69780f1e2d3c4b5a6978", Site: "ams1", Agent: "1.0",
		Decision:        provisioner.Decided{Reason: provisioner.ReasonNew, Policy: "a1a1"},
		FirstEnrolledAt: noon, OwnedSince: noon, UpdatedAt: noon,
	}
	if edit != nil {
		edit(r)
	}
	return r
}

// list lists everything, page by page.
func list(t testing.TB, x *fleet.Index, q fleet.Query) (names []string, p *fleet.Page) {
	t.Helper()
	for {
		var err error
		if p, err = x.List(context.Background(), q); err != nil {
			t.Fatalf("list %+v: %v", q, err)
		}
		for _, n := range p.Nodes {
			names = append(names, string(n.Identity))
		}
		if q.Cursor = p.Next; q.Cursor == "" {
			return names, p
		}
	}
}

// TestFilters selects nodes by everything there is.
func TestFilters(t *testing.T) {
	t.Parallel()
	x, f := index(t)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := x.List(over, fleet.Query{}); !errors.Is(err, fleet.ErrReading) {
		t.Errorf("before all is read: %v", err)
	}
	f.put(t,
		record("web1.example.net", nil),
		record("web2.example.net", func(r *provisioner.Record) {
			r.State, r.Next, r.Current, r.Site, r.Decision.Policy = provisioner.StateEnrolled, r.Current, nil, "fra1", "a2"
		}),
		record("db1.example.net", func(r *provisioner.Record) {
			r.Current.NotAfter, r.UpdatedAt = noon.Add(time.Hour), noon.Add(time.Minute)
		}),
		record("old.example.net", func(r *provisioner.Record) {
			r.State, r.UpdatedAt, r.Token = provisioner.StateRevoked, noon.Add(
				-time.Hour), "ffffffffffffffffffffffffffffffff"
		}),
	)
	tests := map[string]struct {
		q    fleet.Query
		want string
	}{
		"all":        {fleet.Query{}, "db1 old web1 web2"},
		"one a page": {fleet.Query{Query: paging.Query{Limit: 1}}, "db1 old web1 web2"},
		"by expiry":  {fleet.Query{Query: paging.Query{Sort: paging.ByExpiry, Limit: 2}}, "db1 old web1 web2"},
		"by change":  {fleet.Query{Query: paging.Query{Sort: paging.ByChanged, Limit: 1}}, "db1 web1 web2 old"},
		"state": {fleet.Query{Filter: fleet.Filter{States: []provisioner.State{provisioner.StateRevoked,
			provisioner.StateEnrolled}}}, "old web2"},
		"site":        {fleet.Query{Filter: fleet.Filter{Site: "fra1"}}, "web2"},
		"no such":     {fleet.Query{Filter: fleet.Filter{Site: "nowhere"}}, ""},
		"prefix":      {fleet.Query{Filter: fleet.Filter{Prefix: "web"}}, "web1 web2"},
		"match":       {fleet.Query{Filter: fleet.Filter{Match: "*1.example.net"}}, "db1 web1"},
		"expires":     {fleet.Query{Filter: fleet.Filter{ExpiresBefore: noon.Add(2 * time.Hour)}}, "db1"},
		"expires now": {fleet.Query{Filter: fleet.Filter{ExpiresBefore: noon.Add(time.Hour)}}, ""},
		// db1 has said since that it is alive, and of the revoked one it was not the node
		// that was heard of.
		"unseen": {fleet.Query{Filter: fleet.Filter{SeenBefore: noon.Add(time.Minute)}}, "old web1 web2"},
		// A revoked one was heard of when it enrolled.
		"unseen since they came": {fleet.Query{Filter: fleet.Filter{SeenBefore: noon}}, ""},
		"token":                  {fleet.Query{Filter: fleet.Filter{Token: "ffffffffffffffffffffffffffffffff"}}, "old"},
		"policy":                 {fleet.Query{Filter: fleet.Filter{Policy: "a1"}}, "db1 old web1"},
	}
	for name, tt := range tests {
		names, p := list(t, x, tt.q)
		if got := strings.ReplaceAll(strings.Join(names, " "), ".example.net", ""); got != tt.want ||
			p.Total != len(names) {
			t.Errorf("%s: %q, %d in all, want %q", name, got, p.Total, tt.want)
		}
	}
	_, p := list(t, x, fleet.Query{})
	if want := map[provisioner.State]int{provisioner.StateProvisioned: 2, provisioner.StateEnrolled: 1,
		provisioner.StateRevoked: 1}; fmt.Sprint(p.States) != fmt.Sprint(want) {
		t.Errorf("states: %v, want %v", p.States, want)
	}
	got, ok := x.Find("db1.example.net")
	want := fleet.Node{
		Brief: provisioner.Brief{
			Identity: "db1.example.net",
			Traits: provisioner.Traits{
				State:  provisioner.StateProvisioned,
				Site:   "ams1",
				Policy: "a1a1",
				Reason: provisioner.ReasonNew,
				Agent:  "1.0",
			},
			Serial:        "f1e2d3c4b5a69780f1e2d3c4b5a6978",
			Expires:       noon.Add(time.Hour),
			Token:         jwt.TokenID("0f1e2d3c4b5a69780f1e2d3c4b5a6978"),
			FirstEnrolled: noon,
			Changed:       noon.Add(time.Minute),
			OwnedSince:    noon,
		},
		Seen:       noon.Add(time.Hour),
		Connection: &fleet.Liveness{Connected: fleet.Unknown}, // no broker has been listed
		Revision:   3,
	}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("found %v, -want +got\n%s", ok, diff)
	}
	if _, ok := x.Find("never.example.net"); ok {
		t.Error("found a node that has no record")
	}
}

// TestUnknownLastSeenSelectsNoNode filters by last seen while those times are read, and for a time before they were
// kept.
func TestUnknownLastSeenSelectsNoNode(t *testing.T) {
	t.Parallel()
	f := &feed{hold: make(chan struct{}), since: noon.Add(time.Minute)}
	x := f.index(t)
	go func() {
		f.records <- nil
		<-f.done
	}()
	over, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := x.List(over, fleet.Query{Filter: fleet.Filter{SeenBefore: noon}}); !errors.Is(err, fleet.ErrReading) {
		t.Errorf("while it is read: %v, want ErrReading", err)
	}
	if _, err := x.List(context.Background(), fleet.Query{}); err != nil {
		t.Errorf("a list of all, meanwhile: %v", err)
	}
	close(f.hold)
	f.put(t, record("db1.example.net", nil), record("web1.example.net", nil), record("web2.example.net", nil))
	for _, before := range []time.Time{noon, noon.Add(time.Second), f.since} {
		if _, err := x.List(context.Background(),
			fleet.Query{Filter: fleet.Filter{SeenBefore: before}}); !errors.Is(err, fleet.ErrHeard) {
			t.Errorf("not heard of since %v, before that was kept: %v, want ErrHeard", before, err)
		}
	}
	for before, want := range map[time.Time]int{
		f.since.Add(time.Second):    2,
		f.since.Add(24 * time.Hour): 3, // db1 was heard of, an hour after noon
	} {
		p, err := x.List(context.Background(), fleet.Query{Query: paging.Query{Limit: 1}, Filter: fleet.Filter{SeenBefore: before}})
		if err != nil || p.Total != want {
			t.Errorf("not heard of since %v: %+v, %v; want %d", before, p, err, want)
		}
	}
}

// TestNodesSeenSinceAreNotRetired asks about one node before it is known which were heard of, and then.
func TestNodesSeenSinceAreNotRetired(t *testing.T) {
	t.Parallel()
	f := &feed{hold: make(chan struct{}), since: noon.Add(time.Minute)}
	one := fleet.NewInspector(f, f.index(t), &services.Index{})
	over, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := one.Unheard(over, "db1.example.net", noon.Add(24*time.Hour)); !errors.Is(err, fleet.ErrReading) {
		t.Errorf("while it is read: %v, want ErrReading", err)
	}
	close(f.hold)
	f.put(t, record("db1.example.net", nil), record("web1.example.net", nil),
		record("web2.example.net", func(r *provisioner.Record) { r.UpdatedAt = noon.Add(2 * time.Hour) }),
		record("old.example.net",
			func(r *provisioner.Record) { r.State, r.UpdatedAt = provisioner.StateRevoked, noon.Add(2*time.Hour) }))
	for id, heard := range map[wire.Identity]time.Time{
		"db1.example.net": noon.Add(time.Hour), "web1.example.net": noon, "web2.example.net": noon.Add(2 * time.Hour),
		"old.example.net": noon,
	} {
		for before, unheard := range map[time.Time]bool{
			heard:                    false,
			heard.Add(time.Second):   heard.After(f.since),
			f.since:                  false,
			f.since.Add(time.Second): heard.Equal(noon),
			noon.Add(3 * time.Hour):  true,
		} {
			if err := one.Unheard(context.Background(), id, before); unheard && err != nil || !unheard &&
				!errors.Is(err, fleet.ErrHeard) {
				t.Errorf("%s, heard of at %v, not since %v: %v", id, heard, before, err)
			}
		}
	}
}

// TestPagesStayRight lists a fleet that grows, changes and shrinks between pages: each unchanged node is listed exactly
// once.
func TestPagesStayRight(t *testing.T) {
	t.Parallel()
	for _, by := range []paging.Order{paging.ByName, paging.ByExpiry, paging.ByChanged} {
		x, f := index(t)
		var still []string
		for i := range 100 {
			name := fmt.Sprintf("n%03d.example.net", i)
			still = append(still, name)
			f.put(t, record(name, func(r *provisioner.Record) {
				r.UpdatedAt, r.Current.NotAfter = noon.Add(time.Duration(i%7)*time.Minute), noon.Add(
					time.Duration(i%11)*time.Hour)
			}))
		}
		moving := fleet.Query{
			Filter: fleet.Filter{States: []provisioner.State{provisioner.StateProvisioned}},
			Query:  paging.Query{Sort: by, Limit: 9},
		}
		seen := make(map[string]int)
		for page := 0; ; page++ {
			p, err := x.List(context.Background(), moving)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range p.Nodes {
				seen[string(n.Identity)]++
			}
			if moving.Cursor = p.Next; moving.Cursor == "" {
				break
			}
			// One comes before and one after wherever the list is, and one goes.
			f.put(t, record(fmt.Sprintf("a%03d.example.net", page), nil),
				record(fmt.Sprintf("z%03d.example.net", page), nil),
				record(fmt.Sprintf("a%03d.example.net", page-1),
					func(r *provisioner.Record) { r.State = provisioner.StateRevoked }))
		}
		for _, name := range still {
			if seen[name] != 1 {
				t.Errorf("by %s: %s is listed %d times", by, name, seen[name])
			}
		}
	}
}

// TestQueriesThatAreRefused says what is wrong, all of it.
func TestQueriesThatAreRefused(t *testing.T) {
	t.Parallel()
	x, f := index(t)
	f.put(t, record("web1.example.net", nil), record("web2.example.net", nil))
	p, err := x.List(context.Background(), fleet.Query{Query: paging.Query{Limit: 1}})
	if err != nil || p.Next == "" {
		t.Fatalf("first page: %+v, %v", p, err)
	}
	for _, cursor := range []string{"x", "!", p.Next + "x", p.Next[1:]} {
		q := fleet.Query{Query: paging.Query{Cursor: cursor}}
		if _, err := x.List(context.Background(), q); !errors.Is(err, paging.ErrCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	other := fleet.Query{Query: paging.Query{Sort: paging.ByExpiry, Cursor: p.Next}}
	if _, err := x.List(context.Background(), other); !errors.Is(err, paging.ErrCursor) {
		t.Errorf("cursor of another order: %v", err)
	}
	p, err = x.List(context.Background(), fleet.Query{Query: paging.Query{Limit: 2, Cursor: p.Next}})
	if err != nil || len(p.Nodes) != 1 {
		t.Errorf("cursor with another limit: %+v, %v", p, err)
	}
	_, err = x.List(context.Background(),
		fleet.Query{
			Filter: fleet.Filter{States: []provisioner.State{"gone"}, Match: "WEB", Token: "x"},
			Query:  paging.Query{Sort: "size", Limit: 100_000},
		})
	for _, part := range []string{"state:", "match:", "token:", "sort:", "limit:"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v lacks %s", err, part)
		}
	}
}

// TestRecordsThatCannotBeRead stay as they were.
func TestRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	x, f := index(t)
	f.put(t, record("web1.example.net", nil))
	f.records <- []byte(`{"schema":2,"identity":"web1.example.net","state":"revoked"}`)
	f.records <- []byte(`{"schema":1,"identity":"web1.example.net","state":"lost"}`)
	f.records <- []byte(`{"schema":1,"identity":"web1.example.net","state":"revo`)
	f.put(t)
	if names, p := list(t, x, fleet.Query{}); !slices.Equal(names, []string{"web1.example.net"}) ||
		p.Nodes[0].State != provisioner.StateProvisioned {
		t.Errorf("%v %+v", names, p)
	}
}

// TestOlderRecordsChangeNothing: what is handed over late does not bring back what a
// newer record has changed, nor does one that is read again; newer ones count,
// whichever way they come.
func TestOlderRecordsChangeNothing(t *testing.T) {
	t.Parallel()
	x, f := index(t)
	agent := func(a string) *provisioner.Record {
		return record("web1.example.net", func(r *provisioner.Record) { r.Agent = a })
	}
	is := func(want string, at trust.Revision) {
		t.Helper()
		f.put(t) // all before has been taken in
		if n, ok := x.Find("web1.example.net"); !ok || n.Agent != want || n.Revision != at {
			t.Errorf("%+v, want %s at %d", n, want, at)
		}
	}
	f.put(t, agent("read 1"), agent("read 2"))
	is("read 2", 2)
	f.own <- owned{agent("own 1").Brief(), 1}
	is("read 2", 2)
	f.own <- owned{agent("own 9").Brief(), 9}
	is("own 9", 9)
	f.put(t, agent("read 3"))
	is("own 9", 9)
	f.own <- owned{agent("own 10").Brief(), 10}
	is("own 10", 10)
}
