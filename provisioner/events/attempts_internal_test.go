package events

import (
	"fmt"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/jwt"
)

// TestHeavyHittersAreKept counts two who keep at it among a flood of made-up
// addresses, far more than are kept.
func TestHeavyHittersAreKept(t *testing.T) {
	t.Parallel()
	a := NewAttempts()
	now := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	const flood = 50 * attemptsKept
	for i := range flood {
		at := now.Add(time.Duration(i) * time.Second)
		a.Count(&Event{Type: Attempt, Code: wire.CodeTokenInvalid, Source: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Time: at})
		if i%100 == 0 {
			a.Count(&Event{Type: Attempt, Code: wire.CodeTokenExpired, Source: "192.0.2.1:4711", Time: at})
		}
		if i%200 == 0 {
			a.Count(&Event{Type: Refused, Code: wire.CodeDenied, Source: fmt.Sprintf("2001:db8::%x", i), Token: "0b52f4c7a9d84e5b9c1d3f6a7e8b9c0d", Time: at})
		}
	}
	top := a.Sources(2)
	for i, want := range []struct {
		source string
		code   wire.Code
		count  int64
	}{{"192.0.2.1", wire.CodeTokenExpired, flood / 100}, {"2001:db8::/64", wire.CodeDenied, flood / 200}} {
		f := top[i]
		// Never too low, and too high by no more than the bound.
		if f.Source != want.source || f.Codes[want.code] > want.count || f.Count < want.count || f.Count-f.Over > want.count || f.Over > 2*flood/attemptsKept {
			t.Errorf("place %d has %+v, want %d of %s", i+1, f, want.count, want.source)
		}
	}
	if f := top[0]; !f.First.Equal(now) || f.Over != 0 || f.Last.Before(now.Add(flood*time.Second/2)) {
		t.Errorf("the first of all: %+v", f)
	}
	if n := len(a.Sources(flood)); n != attemptsKept || len(a.sources.of) != attemptsKept {
		t.Errorf("%d sources are kept, want %d", n, attemptsKept)
	}
	if tokens := a.Tokens(10); len(tokens) != 1 || tokens[0].Token != jwt.TokenID("0b52f4c7a9d84e5b9c1d3f6a7e8b9c0d") || tokens[0].Count != flood/200 || tokens[0].Source != "" {
		t.Errorf("tokens %+v", tokens)
	}
	if a.Most() != top[0].Count {
		t.Errorf("the most is %d", a.Most())
	}
}

// TestOurOwnTroubleCountsForNobody counts what says something about who asked.
func TestOurOwnTroubleCountsForNobody(t *testing.T) {
	t.Parallel()
	a := NewAttempts()
	for _, c := range wire.Codes {
		for _, typ := range []Type{Attempt, Refused, Enrolled} {
			if n := a.Count(&Event{Type: typ, Code: c.Code, Source: "192.0.2.1"}); (n > 0) != (typ != Enrolled && !ours[c.Code]) {
				t.Errorf("%s with %s is counted %d", typ, c.Code, n)
			}
		}
	}
	for code := range ours {
		if wire.MeaningOf(code).Code != code {
			t.Errorf("%s is no code", code)
		}
	}
	var none *Attempts
	if none.Count(&Event{Type: Attempt}) != 0 || none.Sources(1) != nil || none.Tokens(1) != nil || none.Most() != 0 {
		t.Error("nil counts")
	}
}
