// Package span reads and writes spans of time as operators do: 90s, 30m, 12h, 30d, 2w. Flags, policies,
// provisioner.yaml and server.conf all use it.
package span

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Units of fixed length: a month is 30 days and a year 365, as in Choria's flags.
const (
	Day   = 24 * time.Hour
	Week  = 7 * Day
	Month = 30 * Day
	Year  = 365 * Day
)

// units are tried in this order. M is a month and m a minute; the other units may be upper or lower case.
var units = []struct {
	name string
	span time.Duration
}{
	{"ms", time.Millisecond}, {"y", Year}, {"M", Month}, {"w", Week}, {"d", Day}, {"h", time.Hour}, {"m", time.Minute},
	{"s", time.Second},
}

// errTooLong means that a span does not fit into a [time.Duration].
var errTooLong = errors.New("longer than 292 years")

// Parse reads a span such as 90s, 30d or 1d12h. Its units are y, M (month), w, d, h, m (minute), s and ms. Signs and
// fractions are refused.
func Parse(s string) (time.Duration, error) {
	bad := fmt.Errorf("%.80q is not a span such as 90s, 30m, 12h, 30d or 2w", s)
	if s == "" {
		return 0, bad
	}
	var sum time.Duration
	for rest := s; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		unit, length := unitOf(rest[digits:])
		if digits == 0 || unit == 0 {
			return 0, bad
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 64) // err: too many digits
		if err != nil || n > int64((1<<63-1-sum)/unit) {
			return 0, fmt.Errorf("%.80q is %w", s, errTooLong)
		}
		sum += time.Duration(n) * unit
		rest = rest[digits+length:]
	}
	return sum, nil
}

// unitOf returns the unit at the start of s and the length of its name, or zero.
func unitOf(s string) (unit time.Duration, length int) {
	for _, u := range units {
		begins := s[:min(len(u.name), len(s))]
		if begins == u.name || u.name != "M" && u.name != "m" && strings.ToLower(begins) == u.name {
			return u.span, len(u.name)
		}
	}
	return 0, 0
}

// shown are the units that [Format] writes. Months are missing, because m means a minute.
var shown = []struct {
	letter byte
	span   time.Duration
}{{'y', Year}, {'d', Day}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}

// Format writes the largest unit of a span and the next smaller one, rounded, as in 1y 20d, 3d 4h, 12s. It omits the
// sign.
func Format(d time.Duration) string {
	if d = d.Abs(); d < time.Second {
		return "less than 1s"
	}
	for i, u := range shown {
		if d >= u.span {
			d = d.Round(shown[min(i+1, len(shown)-1)].span)
			break
		}
	}
	var parts []string // two at most: rounding has made the other units zero
	for _, u := range shown {
		if n := d / u.span; n > 0 {
			parts = append(parts, fmt.Sprintf("%d%c", n, u.letter))
			d -= n * u.span
		}
	}
	return strings.Join(parts, " ")
}

// Age writes a span for a column of a table, in one unit: 45s, 90m, 30h, 12d; from two years on as [Format] does. It
// omits the sign.
func Age(d time.Duration) string {
	d = d.Abs()
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 2*Day:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d < 2*Year:
		return fmt.Sprintf("%dd", d/Day)
	}
	return Format(d)
}

// Ago writes a time as its distance from now, for a table or a page: 45s ago, in 12d. It is empty for the zero time.
func Ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return ""
	case d < 0:
		return "in " + Age(d)
	default:
		return Age(d) + " ago"
	}
}

// ParseTime reads a time in RFC 3339, or a span from now.
func ParseTime(s string, now time.Time) (time.Time, error) { return parseTime(s, now, 1) }

// ParsePast reads a time in RFC 3339, or a span back from now.
func ParsePast(s string, now time.Time) (time.Time, error) { return parseTime(s, now, -1) }

func parseTime(s string, now time.Time, sign time.Duration) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil && !t.IsZero() { // programs write the zero time for no time
		return t.UTC(), nil
	}
	d, err := Parse(s)
	if errors.Is(err, errTooLong) {
		return time.Time{}, err
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%.80q is neither a span such as 12h or 7d "+
			"nor a time such as 2027-01-31T12:00:00Z", s)
	}
	return now.Add(sign * d).UTC(), nil
}

// Sleep reports whether d passed before ctx was done.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}

// Every calls what at once, and then each time that d has passed, until ctx is done. It returns nil.
func Every(ctx context.Context, d time.Duration, what func(context.Context)) error {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		what(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
