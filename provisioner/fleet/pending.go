package fleet

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/provisioner/facts"
	"muster/provisioner/waiting"
)

// PendingParameters are the parameters of [ParsePending]. A trailing * allows repetition.
var PendingParameters = []string{"prefix", "match", "site", "token", "from", "fact*"}

// A PendingFilter selects waiting keys by name, site, token and facts as [Filter] does, and by address.
type PendingFilter struct {
	Filter

	facts []facts.Filter
}

// ParsePending is [ParseQuery] for a pending filter. The parameter from is an address or a range.
func ParsePending(v url.Values) (*PendingFilter, error) {
	q, err := ParseQuery(v, time.Time{})
	f, p := &PendingFilter{Filter: q.Filter}, paging.Parameters{Values: v}
	if from := v.Get("from"); from != "" {
		var wrong error
		f.within, wrong = parseRange(from)
		if wrong != nil {
			p.Wrong("from", fmt.Errorf("address %.80q, want an address such as 192.0.2.1, or a range such as "+
				"192.0.2.0/24", from))
		}
	}
	f.facts, _ = parseFacts(f.Facts) // checked
	return f, p.Err(err)
}

// Selects reports whether the filter selects a key.
func (f *PendingFilter) Selects(w *waiting.Key) bool {
	at, _ := netip.ParseAddr(w.Source)
	return f.SelectsName(w.Identity) && (f.Site == "" || w.Site == f.Site) && f.Sites.Has(w.Site) &&
		(f.Token == "" || w.Token == f.Token) &&
		(f.within == netip.Prefix{} || f.within.Contains(at.Unmap())) &&
		!slices.ContainsFunc(f.facts, func(want facts.Filter) bool {
			shown, has := w.Facts[want.Name]
			return !has || !want.Match(shown)
		})
}

// SelectsName is Selects for a rejected key, of which only the name is known.
func (f *PendingFilter) SelectsName(id wire.Identity) bool {
	return strings.HasPrefix(string(id), f.Prefix) && (f.Match == "" || f.Match.Match(id))
}
