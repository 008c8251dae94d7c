package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// Int makes a flag take a whole number, in decimal and with an optional sign,
// into target. Kingpin's own IntVar also takes 1e3 and 1.5, wraps around
// beyond 64 bits and speaks of strconv when it refuses.
func Int[T int | int64](flag *kingpin.FlagClause, target *T) {
	flag.SetValue(&number[T]{flag.Model().Name, target})
}

// number implements [kingpin.Value].
type number[T int | int64] struct {
	flag   string
	target *T
}

// Set implements [kingpin.Value]. Its error is all that is said about it.
func (n *number[T]) Set(s string) error {
	parsed, err := strconv.ParseInt(s, 10, strconv.IntSize) // an int64 of a smaller machine is no number of muster's
	switch {
	case errors.Is(err, strconv.ErrRange) && strings.HasPrefix(s, "-"):
		return fmt.Errorf("--%s is %q, want a whole number of %d or more", n.flag, s, math.MinInt)
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s is %q, want a whole number of %d or less", n.flag, s, math.MaxInt)
	case err != nil:
		return fmt.Errorf("--%s is %q, want a whole number", n.flag, s)
	}
	*n.target = T(parsed)
	return nil
}

// String implements [kingpin.Value].
func (n *number[T]) String() string { return strconv.FormatInt(int64(*n.target), 10) }

// joinNegatives writes a flag and the negative value after it, such as
// "--uses -1", as one argument, "--uses=-1". Kingpin would take -1 for a flag
// and miss the value, so that nothing could be said about the number; of the "-"
// of "--input -", standard input, it would make an empty value.
func joinNegatives(app *kingpin.ApplicationModel, args []string) []string {
	takes := make(map[string]bool)
	valueFlags(app.FlagGroupModel, app.CmdGroupModel, takes)
	var joined []string
	for i := 0; i < len(args); i++ {
		name, long := strings.CutPrefix(args[i], "--")
		if long && name == "" { // nothing after this is a flag
			return append(joined, args[i:]...)
		}
		if long && takes[name] && i+1 < len(args) {
			if next := args[i+1]; !strings.HasPrefix(next, "--") {
				// A key in base64url may begin with - as well; a flag in one letter has two.
				if next == "-" || len(next) > 1 && next[0] == '-' && ('0' <= next[1] && next[1] <= '9' || len(next) > 2) {
					joined = append(joined, args[i]+"="+next)
				} else {
					joined = append(joined, args[i], next)
				}
				i++
				continue
			}
		}
		joined = append(joined, args[i])
	}
	return joined
}

// valueFlags adds the names of all flags that take a value.
func valueFlags(flags *kingpin.FlagGroupModel, commands *kingpin.CmdGroupModel, names map[string]bool) {
	for _, f := range flags.Flags {
		if !f.IsBoolFlag() {
			names[f.Name] = true
		}
	}
	for _, c := range commands.Commands {
		valueFlags(c.FlagGroupModel, c.CmdGroupModel, names)
	}
}
