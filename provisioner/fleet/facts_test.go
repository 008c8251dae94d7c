package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/facts"
	"muster/provisioner/fleet"
)

// says returns the record of a node that has said so of itself, in pairs.
func says(name string, pairs ...string) *provisioner.Record {
	return record(name+".example.net", func(r *provisioner.Record) {
		for i := 0; i < len(pairs); i += 2 {
			r.Facts = append(r.Facts, facts.Fact{Name: pairs[i], Value: pairs[i+1]})
		}
	})
}

// TestFactFilters finds nodes by what they have said of themselves, among nodes that
// have said nothing, or what is not kept.
func TestFactFilters(t *testing.T) {
	t.Parallel()
	x, f := index(t, "role", "os.name", "rack", "role")
	if want := []string{"os.name", "rack", "role"}; !slices.Equal(x.Facts(), want) {
		t.Errorf("kept are %v, want %v", x.Facts(), want)
	}
	f.put(t,
		says("web1", "os.name", "Debian", "rack", "r4", "role", "web"),
		says("web2", "os.name", "Debian", "rack", "r5", "role", "web/front"),
		says("db1", "os.name", "Rocky", "rack", "r4", "role", "db=1"), says("db2", "role", "db=2"),
		says("odd", "aaa", "Debian", "os.kernel", "r4", "zzz", "web"),
		says("sly", "rack", "r\x1f4", "role", "web"), says("bare"),
		record("gone.example.net", func(r *provisioner.Record) {
			r.State, r.Facts = provisioner.StateRetired, facts.Facts{{Name: "role", Value: "web"}}
		}))
	for facts, want := range map[string]string{
		"role=web": "gone sly web1", "role=web*": "gone sly web1 web2", "role=web/*": "web2", "role=db=1": "db1",
		"role=db=?": "db1 db2", "role=*": "db1 db2 gone sly web1 web2",
		"os.name=Debian": "web1 web2", "os.name=debian": "", "os.name=Debian rack=r4": "web1",
		"rack=r4 rack=r*": "db1 web1", "rack=r4 role=web": "web1",
		"rack=": "bare db2 gone odd sly", "rack= role=web": "gone sly", "rack=[a-z]4": "db1 web1", "role=nobody": "",
		"role=r4": "", "": "bare db1 db2 gone odd sly web1 web2",
	} {
		q := fleet.Query{Filter: fleet.Filter{Facts: strings.Fields(facts)}, Query: paging.Query{Limit: 2}}
		names, p := list(t, x, q)
		if got := strings.ReplaceAll(strings.Join(names, " "), ".example.net", ""); got != want ||
			p.Total != len(names) {
			t.Errorf("%s: %q, %d in all, want %q", facts, got, p.Total, want)
		}
	}
	q := fleet.Query{Filter: fleet.Filter{
		Facts:  []string{"role=web"},
		States: []provisioner.State{provisioner.StateProvisioned},
		Match:  "web*.example.net",
	}}
	if names, _ := list(t, x, q); fmt.Sprint(names) != "[web1.example.net]" {
		t.Errorf("with other filters: %v", names)
	}
	for name, want := range map[wire.Identity]facts.Facts{
		"web1.example.net": {{Name: "os.name", Value: "Debian"}, {Name: "rack", Value: "r4"},
			{Name: "role", Value: "web"}},
		"db2.example.net": {{Name: "role", Value: "db=2"}}, "odd.example.net": nil, "bare.example.net": nil,
	} {
		if n, ok := x.Find(name); !ok || !slices.Equal(n.Facts, want) {
			t.Errorf("%s: %v, want %v", name, n.Facts, want)
		}
	}
}

// TestFactsThatChange: nodes are found by what they have said last, nodes that say the
// same share it. Own records and those that are read say the same.
func TestFactsThatChange(t *testing.T) {
	t.Parallel()
	x, f := index(t, "rack", "role")
	for i := range 1000 {
		f.put(t, says("web1", "rack", fmt.Sprint("r", i), "role", "web"),
			says("web2", "rack", fmt.Sprint("r", i), "role", "web"))
	}
	own := says("web2", "rack", "r4", "role", "web").Brief()
	f.own <- owned{own, 5000}
	f.put(t, says("web3"))
	for fact, want := range map[string]string{"rack=r4": "[web2.example.net]", "rack=r999": "[web1.example.net]",
		"rack=r998": "[]", "role=web": "[web1.example.net web2.example.net]"} {
		if names, _ := list(t, x, fleet.Query{Filter: fleet.Filter{Facts: []string{fact}}}); fmt.Sprint(names) != want {
			t.Errorf("%s: %v, want %s", fact, names, want)
		}
	}
	f.put(t, says("web1"), says("web1", "other", "x"))
	if names, _ := list(t, x,
		fleet.Query{Filter: fleet.Filter{Facts: []string{"role="}}}); fmt.Sprint(
		names) != "[web1.example.net web3.example.net]" {
		t.Errorf("of no role: %v", names)
	}
}

// TestFactsThatCannotBeAsked says which facts are kept, and how to keep more.
func TestFactsThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	x, f := index(t, "os.name", "role")
	bare, g := index(t)
	f.put(t, says("web1", "role", "web"))
	g.put(t, says("web1", "role", "web"))
	for name, tt := range map[string]struct {
		index *fleet.Index
		facts []string
		says  string
		kept  bool
	}{
		"not kept": {x, []string{"os.kernel=6*", "role=web", "rack=r4", "os.kernel=7*"},
			`fact "os.kernel, rack": not kept: the kept facts are os.name, role; add it to fleet.facts`, false},
		"nothing kept":  {bare, []string{"role=web"}, "the kept facts are none", false},
		"no value":      {x, []string{"role"}, `fact "role", want NAME=VALUE`, true},
		"a bad pattern": {x, []string{"role=[", "=x"}, `fact "=x"`, true},
		"a long value": {x, []string{"role=" + strings.Repeat("x", 129)},
			`fact "role": value of 129 bytes, limit 128`, true},
		"too many": {x, slices.Repeat([]string{"role=web"}, 17), "17 facts, limit 16", true},
	} {
		q := fleet.Query{Filter: fleet.Filter{Facts: tt.facts}}
		_, err := tt.index.List(context.Background(), q)
		switch {
		case err == nil || !strings.Contains(err.Error(), tt.says) || errors.Is(err, fleet.ErrFact) == tt.kept:
			t.Errorf("%s: %v, want %s", name, err, tt.says)
		case (q.Check() != nil) != tt.kept:
			t.Errorf("%s: checked without an index: %v", name, q.Check())
		case !tt.kept && strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: in several lines: %v", name, err)
		}
	}
}
