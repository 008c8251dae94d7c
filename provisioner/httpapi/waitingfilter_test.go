package httpapi_test

import (
	"slices"
	"strings"
	"testing"

	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// TestWaitingFilter selects by all that is known of those who wait, and says
// what is wrong with a filter rather than select too much.
func TestWaitingFilter(t *testing.T) {
	t.Parallel()
	all := []*provisioner.Waiter{
		{Identity: "web1.example.net", Source: "192.0.2.7", Site: "ams1", Token: "0123456789abcdef0123456789abcdef", Facts: map[string]string{"rack": "r4", "role": "web/front"}},
		{Identity: "web2.example.net", Source: "::ffff:192.0.2.99", Site: "fra1", Token: "0123456700000000000000000000aaaa", Facts: map[string]string{"rack": "r5"}},
		{Identity: "db1.example.net", Source: "2001:db8::1", Site: "ams1", Token: "ffffffff00000000000000000000aaaa"},
		{Identity: "db1.rack.example.net", Source: ""},
	}
	tests := map[string]struct {
		filter httpapi.WaitingFilter
		want   string // first labels
		wrong  string
	}{
		"everybody":                    {want: "web1 web2 db1 db1"},
		"by prefix":                    {filter: httpapi.WaitingFilter{Prefix: "web"}, want: "web1 web2"},
		"by patterns":                  {filter: httpapi.WaitingFilter{Names: []string{"web1.*.net", "db*.example.net"}}, want: "web1 db1"},
		"a pattern is label by label":  {filter: httpapi.WaitingFilter{Names: []string{"db*.net"}}},
		"by site":                      {filter: httpapi.WaitingFilter{Site: "ams1"}, want: "web1 db1"},
		"by token":                     {filter: httpapi.WaitingFilter{Token: "0123456789abcdef0123456789abcdef"}, want: "web1"},
		"by the beginning of a token":  {filter: httpapi.WaitingFilter{Token: "01234567"}, want: "web1 web2"},
		"by address":                   {filter: httpapi.WaitingFilter{From: "192.0.2.99"}, want: "web2"},
		"by range":                     {filter: httpapi.WaitingFilter{From: "192.0.2.64/26"}, want: "web2"},
		"by a range that is not exact": {filter: httpapi.WaitingFilter{From: "192.0.2.1/24"}, want: "web1 web2"},
		"by range, version 6":          {filter: httpapi.WaitingFilter{From: "2001:db8::/32"}, want: "db1"},
		"by fact":                      {filter: httpapi.WaitingFilter{Facts: []string{"rack=r4"}}, want: "web1"},
		"by part of a fact":            {filter: httpapi.WaitingFilter{Facts: []string{"rack=r*", "role=w*t"}}, want: "web1"},
		"a fact that nobody has":       {filter: httpapi.WaitingFilter{Facts: []string{"cpu=*"}}},
		"by all at once":               {filter: httpapi.WaitingFilter{Prefix: "web", Site: "ams1", From: "192.0.2.0/24", Facts: []string{"rack=r4"}}, want: "web1"},
		"a bad pattern":                {filter: httpapi.WaitingFilter{Names: []string{"Web*"}}, wrong: "'W'"},
		"a short token":                {filter: httpapi.WaitingFilter{Token: "0123"}, wrong: "8 to 32"},
		"no token":                     {filter: httpapi.WaitingFilter{Token: "eyJhbGciOiJF"}, wrong: "8 to 32"},
		"no address":                   {filter: httpapi.WaitingFilter{From: "rack4"}, wrong: "want one as 192.0.2.1"},
		"no fact":                      {filter: httpapi.WaitingFilter{Facts: []string{"rack"}}, wrong: "NAME=VALUE"},
		"a broken fact":                {filter: httpapi.WaitingFilter{Facts: []string{"rack=[", "=x"}}, wrong: `fact "=x"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meant, err := tt.filter.Compile()
			if tt.wrong != "" || err != nil {
				if err == nil || tt.wrong == "" || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("%v, want %q", err, tt.wrong)
				}
				return
			}
			var got []string
			for _, w := range all {
				if meant(w) {
					first, _, _ := strings.Cut(string(w.Identity), ".")
					got = append(got, first)
				}
			}
			if !slices.Equal(got, strings.Fields(tt.want)) {
				t.Errorf("selects %v, want %q", got, tt.want)
			}
			if tt.filter.IsZero() != (name == "everybody") {
				t.Errorf("selects everybody: %v", tt.filter.IsZero())
			}
		})
	}
}
