package httpapi

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"muster/provisioner/waiting"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/facts"
)

// A WaitingFilter selects some of those who wait, as text: all that is given
// must be so. The zero value selects everybody.
type WaitingFilter struct {
	Prefix string   // of the name
	Names  []string // patterns, of which the name matches one
	Site   string   // of the broker that it reached
	Token  string   // id of the token that it presented, or its first 8 hex digits or more
	From   string   // address that it came from, or a range as 192.0.2.0/24
	Facts  []string // name=value, each of which it presented; * and ? in a value stand for any text and any character
}

// IsZero reports whether it selects everybody.
func (f *WaitingFilter) IsZero() bool {
	return f.Prefix == "" && f.Site == "" && f.Token == "" && f.From == "" && len(f.Names) == 0 && len(f.Facts) == 0
}

// Query returns it as the query of a request.
func (f *WaitingFilter) Query() url.Values {
	q := url.Values{"name": f.Names, "fact": f.Facts}
	for key, value := range map[string]string{"prefix": f.Prefix, "site": f.Site, "token": f.Token, "from": f.From} {
		if value != "" {
			q.Set(key, value)
		}
	}
	return q
}

// waitingFilterOf returns the filter in a query.
func waitingFilterOf(q url.Values) *WaitingFilter {
	return &WaitingFilter{Prefix: q.Get("prefix"), Names: q["name"], Site: q.Get("site"), Token: q.Get("token"), From: q.Get("from"), Facts: q["fact"]}
}

// matches reports whether the filter's names cover an identity.
func (f *WaitingFilter) matches(id wire.Identity) bool {
	return strings.HasPrefix(string(id), f.Prefix) &&
		(len(f.Names) == 0 || slices.ContainsFunc(f.Names, func(name string) bool { return wire.Pattern(name).Match(id) }))
}

// shortest is how much of a token's id selects it, in hex digits.
const shortest = 8

// Compile returns what selects, or all that is wrong with the filter.
func (f *WaitingFilter) Compile() (func(*waiting.Key) bool, error) {
	var errs []error
	wants := []func(*waiting.Key) bool{func(w *waiting.Key) bool { return f.matches(w.Identity) }}
	for _, name := range f.Names {
		_, err := wire.ParsePattern(name)
		errs = append(errs, err)
	}
	if f.Site != "" {
		site, err := jwt.ParseSite(f.Site)
		errs = append(errs, err)
		wants = append(wants, func(w *waiting.Key) bool { return w.Site == site })
	}
	if f.Token != "" {
		if n := len(f.Token); n < shortest || n > 32 || strings.Trim(f.Token, "0123456789abcdef") != "" {
			errs = append(errs, fmt.Errorf("token %.80q, want %d to 32 lower-case hex digits of its id", f.Token, shortest))
		}
		wants = append(wants, func(w *waiting.Key) bool { return strings.HasPrefix(string(w.Token), f.Token) })
	}
	if f.From != "" {
		within, err := rangeOf(f.From)
		errs = append(errs, err)
		wants = append(wants, func(w *waiting.Key) bool {
			at, err := netip.ParseAddr(w.Source)
			return err == nil && within.Contains(at.Unmap())
		})
	}
	for _, fact := range f.Facts {
		want, err := facts.ParseFilter(fact)
		errs = append(errs, err)
		wants = append(wants, func(w *waiting.Key) bool {
			shown, has := w.Facts[want.Name]
			return has && want.Match(shown)
		})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return func(w *waiting.Key) bool {
		return !slices.ContainsFunc(wants, func(want func(*waiting.Key) bool) bool { return !want(w) })
	}, nil
}

// rangeOf returns the addresses that text names: one, or a range.
func rangeOf(text string) (netip.Prefix, error) {
	if at, err := netip.ParseAddr(text); err == nil {
		at = at.Unmap()
		return netip.PrefixFrom(at, at.BitLen()), nil
	}
	within, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("address %.80q, want one as 192.0.2.1, or a range as 192.0.2.0/24", text)
	}
	return within.Masked(), nil
}
