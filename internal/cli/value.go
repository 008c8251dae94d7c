package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/span"
)

// value implements [kingpin.Value] by a function. It ignores an empty text, which [Program.Run] refuses for all flags.
type value struct {
	set  func(string) error
	many bool
}

// Set implements [kingpin.Value].
func (v *value) Set(s string) error {
	if s == "" {
		return nil
	}
	return v.set(s)
}

func (v *value) String() string { return "" }

// IsCumulative reports whether the flag may be repeated.
func (v *value) IsCumulative() bool { return v.many }

// Int makes a flag take a whole number in decimal. Kingpin's own IntVar also takes 1e3 and 1.5, overflows beyond 64
// bits, and names strconv in its errors.
func Int[T int | int64](flag *kingpin.FlagClause, target *T) {
	IntIn(flag, target, math.MinInt, math.MaxInt)
}

// IntIn is [Int] for numbers from least to most.
func IntIn[T int | int64](flag *kingpin.FlagClause, target *T, least, most T) {
	name := flag.Model().Name
	flag.SetValue(&value{set: func(s string) error {
		n, err := strconv.ParseInt(s, 10, strconv.IntSize)
		switch {
		case err != nil:
			return fmt.Errorf("--%s is %q, want a whole number", name, s)
		case T(n) < least && most == math.MaxInt:
			return fmt.Errorf("--%s is %d, want %d or more", name, n, least)
		case T(n) < least || T(n) > most:
			return fmt.Errorf("--%s is %d, want %d to %d", name, n, least, most)
		}
		*target = T(n)
		return nil
	}})
}

// Duration makes a flag take a span from least to most, see [span.Parse].
func Duration(flag *kingpin.FlagClause, target *time.Duration, least, most time.Duration) {
	name := flag.Model().Name
	flag.SetValue(&value{set: func(s string) (err error) {
		*target, err = DurationOf(name, s, least, most)
		return err
	}})
}

// DurationOf parses a span from least to most. The error begins with the flag and names the limits.
func DurationOf(flag, s string, least, most time.Duration) (time.Duration, error) {
	limits := span.Format(least) + " to " + span.Format(most)
	if least == 0 {
		limits = "0s to " + span.Format(most)
	}
	d, err := span.Parse(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("--%s: %w; want %s", flag, err, limits)
	case d < least || d > most:
		return 0, fmt.Errorf("--%s is %q, want %s", flag, s, limits)
	}
	return d, nil
}

// Until makes a flag take a time from least to most ahead, or the span until then.
func Until(flag *kingpin.FlagClause, target *time.Duration, least, most time.Duration) {
	spanOrTime(flag, target, least, most, time.Until)
}

// Since makes a flag take a time from least to most ago, or the span since then.
func Since(flag *kingpin.FlagClause, target *time.Duration, least, most time.Duration) {
	spanOrTime(flag, target, least, most, time.Since)
}

func spanOrTime(
	flag *kingpin.FlagClause, target *time.Duration, least, most time.Duration, distance func(time.Time) time.Duration,
) {
	name := flag.Model().Name
	flag.SetValue(&value{set: func(s string) (err error) {
		at, noTime := time.Parse(time.RFC3339, s)
		if noTime != nil {
			*target, err = DurationOf(name, s, least, most)
			return err
		}
		if *target = distance(at); *target < least || *target > most {
			return fmt.Errorf("--%s is %s, want a time %s to %s away", name, s, span.Format(least), span.Format(most))
		}
		return nil
	}})
}

// Enum makes a flag take one of the options.
func Enum(flag *kingpin.FlagClause, target *string, options ...string) {
	Parse(flag.HintOptions(options...), target, func(s string) (string, error) {
		if slices.Contains(options, s) {
			return s, nil
		}
		return "", fmt.Errorf("--%s is %q, want %s", flag.Model().Name, s, strings.Join(options, ", "))
	})
}

// Parse makes a flag take the result of parse.
func Parse[T any](flag *kingpin.FlagClause, target *T, parse func(string) (T, error)) {
	flag.SetValue(&value{set: func(s string) (err error) {
		*target, err = parse(s)
		return named(flag, err)
	}})
}

// ParseEach is [Parse] for a flag that may be repeated.
func ParseEach[T any](flag *kingpin.FlagClause, target *[]T, parse func(string) (T, error)) {
	flag.SetValue(&value{many: true, set: func(s string) error {
		v, err := parse(s)
		*target = append(*target, v)
		return named(flag, err)
	}})
}

// named puts the name of a flag before an error about its value, unless it is there.
func named(flag *kingpin.FlagClause, err error) error {
	if name := "--" + flag.Model().Name; err != nil && !strings.HasPrefix(err.Error(), name) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// Arg makes an argument take the result of parse. The error of parse is reported as it is.
func Arg[T any](arg *kingpin.ArgClause, target *T, parse func(string) (T, error)) {
	arg.SetValue(&value{set: func(s string) (err error) {
		*target, err = parse(s)
		return err
	}})
}

// Parsed turns a parser into one that only checks, and returns the text.
func Parsed[T any](parse func(string) (T, error)) func(string) (string, error) {
	return Checked(func(s string) error {
		_, err := parse(s)
		return err
	})
}

// Checked turns a check of a text into a parser that returns the text.
func Checked[S ~string](check func(S) error) func(string) (S, error) {
	return func(s string) (S, error) { return S(s), check(S(s)) }
}
