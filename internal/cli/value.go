package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// value implements [kingpin.Value] by a function. An empty text is left to [Run], which refuses it for all flags.
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

// String implements [kingpin.Value].
func (v *value) String() string { return "" }

// IsCumulative reports whether there may be several.
func (v *value) IsCumulative() bool { return v.many }

// Int makes a flag take a whole number, in decimal and with an optional sign,
// into target. Kingpin's own IntVar also takes 1e3 and 1.5, wraps around
// beyond 64 bits and speaks of strconv when it refuses.
func Int[T int | int64](flag *kingpin.FlagClause, target *T) {
	IntIn(flag, target, math.MinInt, math.MaxInt)
}

// IntIn is [Int] of a number that is least to most.
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

// Duration makes a flag take a duration of least to most, as [ParseDuration] reads it.
func Duration(flag *kingpin.FlagClause, target *time.Duration, least, most time.Duration) {
	name := flag.Model().Name
	flag.SetValue(&value{set: func(s string) (err error) {
		*target, err = DurationOf(name, s, least, most)
		return err
	}})
}

// Flag makes a flag take what parse makes of its text.
func Flag[T any](flag *kingpin.FlagClause, target *T, parse func(string) (T, error)) {
	flag.SetValue(&value{set: setter(target, parse)})
}

// Flags is Flag for one that may be repeated.
func Flags[T any](flag *kingpin.FlagClause, target *[]T, parse func(string) (T, error)) {
	flag.SetValue(&value{many: true, set: func(s string) error {
		v, err := parse(s)
		*target = append(*target, v)
		return err
	}})
}

// Arg makes an argument take what parse makes of its text. The error of parse is all that is said about it.
func Arg[T any](arg *kingpin.ArgClause, target *T, parse func(string) (T, error)) {
	set := setter(target, parse)
	arg.SetValue(&value{set: func(s string) error {
		if err := set(s); err != nil {
			return &argError{err}
		}
		return nil
	}})
}

func setter[T any](target *T, parse func(string) (T, error)) func(string) error {
	return func(s string) (err error) {
		*target, err = parse(s)
		return err
	}
}

// argError is the error of an argument, which says what it is about.
type argError struct{ error }

// Checked is check as a parser of text that stays as it is.
func Checked[S ~string](check func(S) error) func(string) (S, error) {
	return func(s string) (S, error) { return S(s), check(S(s)) }
}

// joinNegatives writes a flag and the negative value after it, such as
// "--uses -1", as one argument, "--uses=-1". Kingpin would take -1 for a flag
// and miss the value, so that nothing could be said about the number; of the "-"
// of "--input -", standard input, it would make an empty value.
func joinNegatives(app *kingpin.ApplicationModel, args []string) (joined []string) {
	takes := make(map[string]bool)
	note := func(flags []*kingpin.FlagModel) {
		for _, f := range flags {
			takes[f.Name] = takes[f.Name] || !f.IsBoolFlag()
		}
	}
	note(app.Flags)
	each(app.CmdGroupModel, func(c *kingpin.CmdModel) { note(c.Flags) })
	for i := 0; i < len(args); i++ {
		name, long := strings.CutPrefix(args[i], "--")
		if long && name == "" { // nothing after this is a flag
			return append(joined, args[i:]...)
		}
		if !long || !takes[name] || i+1 == len(args) || strings.HasPrefix(args[i+1], "--") {
			joined = append(joined, args[i])
			continue
		}
		next := args[i+1]
		i++
		// A key in base64url may begin with - as well; a flag in one letter has two.
		if next == "-" || len(next) > 1 && next[0] == '-' && ('0' <= next[1] && next[1] <= '9' || len(next) > 2) {
			joined = append(joined, args[i-1]+"="+next)
		} else {
			joined = append(joined, args[i-1], next)
		}
	}
	return joined
}

// each calls f for every command of a group and below it.
func each(group *kingpin.CmdGroupModel, f func(*kingpin.CmdModel)) {
	for _, c := range group.Commands {
		f(c)
		each(c.CmdGroupModel, f)
	}
}
