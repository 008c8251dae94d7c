package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Spans that people mean by a day, a week, a month and a year, as in Choria's
// flags. They follow no calendar: a year is 365 days.
const (
	Day   = 24 * time.Hour
	Week  = 7 * Day
	Month = 30 * Day
	Year  = 365 * Day
)

// units are the letters of durations, longest span first. M is a month and m
// a minute; the others may be written in either case.
var units = []struct {
	letters string
	span    time.Duration
}{
	{"yY", Year}, {"M", Month}, {"wW", Week}, {"dD", Day}, {"hH", time.Hour}, {"m", time.Minute}, {"sS", time.Second},
}

// errTooLong means that a duration is one, and longer than a [time.Duration] can be.
var errTooLong = errors.New("longer than 292 years")

// ParseDuration parses durations such as 1y, 30d, 12h or 1d12h: whole numbers
// with the units y, M (month), w, d, h, m (minute) and s. There is no sign and
// no fraction.
func ParseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration such as 1y, 30d, 12h or 1d12h", s)
	if s == "" {
		return 0, bad
	}
	var sum time.Duration
	for rest := s; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == 0 || digits == len(rest) {
			return 0, bad
		}
		span := spanOf(rest[digits])
		if span == 0 {
			return 0, bad
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 64) // of digits only, so err means that they are too many
		if err != nil || n > int64((1<<63-1-sum)/span) {
			return 0, fmt.Errorf("%q is %w", s, errTooLong)
		}
		sum += time.Duration(n) * span
		rest = rest[digits+1:]
	}
	return sum, nil
}

// DurationOf parses the value of a flag as [ParseDuration] does and wants it to be
// least to most. The error begins with the flag and says the limits.
func DurationOf(flag, s string, least, most time.Duration) (time.Duration, error) {
	limits := Span(least) + " to " + Span(most)
	if least == 0 {
		limits = "0s to " + Span(most)
	}
	d, err := ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("--%s: %w; want %s", flag, err, limits)
	case d < least || d > most:
		return 0, fmt.Errorf("--%s is %q, want %s", flag, s, limits)
	}
	return d, nil
}

func spanOf(letter byte) time.Duration {
	for _, u := range units {
		if strings.IndexByte(u.letters, letter) >= 0 {
			return u.span
		}
	}
	return 0
}

// spanUnits are those that [Span] writes. Months are left out, since m would be
// read as minutes, and weeks, since nobody counts a year in them.
var spanUnits = []struct {
	letter byte
	span   time.Duration
}{{'y', Year}, {'d', Day}, {'h', time.Hour}, {'m', time.Minute}, {'s', time.Second}}

// Span writes a duration for people: its largest unit and the one below that,
// rounded to the nearest, as in 1y 20d, 3d 4h, 12s. So a year less a second is
// 1y. The sign is left out.
func Span(d time.Duration) string {
	if d = d.Abs(); d < time.Second {
		return "less than 1s"
	}
	for i, u := range spanUnits {
		if d >= u.span {
			d = d.Round(spanUnits[min(i+1, len(spanUnits)-1)].span)
			break
		}
	}
	var parts []string // two at most: rounding has made the others zero
	for _, u := range spanUnits {
		if n := d / u.span; n > 0 {
			parts = append(parts, fmt.Sprintf("%d%c", n, u.letter))
			d -= n * u.span
		}
	}
	return strings.Join(parts, " ")
}

// ParseInstant parses an instant in RFC 3339, or a duration from now as in
// [ParseDuration].
func ParseInstant(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		if t.IsZero() { // how programs write that there is none: nobody means it, and to us it is none
			return time.Time{}, errors.New(strconv.Quote(s) + " is how programs write no time at all; want an instant such as 2027-01-31T12:00:00Z or a duration from now such as 12h")
		}
		return t.UTC(), nil
	}
	d, err := ParseDuration(s)
	if errors.Is(err, errTooLong) {
		return time.Time{}, err
	}
	if err != nil {
		return time.Time{}, errors.New(strconv.Quote(s) + " is neither an instant such as 2027-01-31T12:00:00Z nor a duration from now such as 12h")
	}
	return now.Add(d).UTC(), nil
}
