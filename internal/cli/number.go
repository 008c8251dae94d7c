package cli

import (
	"fmt"
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
	parsed, err := strconv.ParseInt(s, 10, strconv.IntSize)
	if err != nil {
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
