package verb

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Instant writes a local time, "-" for none. Flags that take times read it.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.RFC3339)
}

// Counted writes a number with what it counts.
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Nodes counts nodes.
func Nodes(n int) string { return Counted(n, "node", "nodes") }

// Tallied lists counts, the largest first.
func Tallied[K ~string, N int | int64](counts map[K]N) string {
	keys := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(keys, func(a, b K) int { return cmp.Compare(counts[b], counts[a]) })
	var list []string
	for _, k := range keys {
		list = append(list, fmt.Sprintf("%s %d", k, counts[k]))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// Joined writes a list with commas between.
func Joined[S ~string](list []S) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = string(s)
	}
	return strings.Join(parts, ", ")
}

// Short cuts a hash to what tells it apart for people.
func Short(hash string) string { return hash[:min(16, len(hash))] }

// OrDash writes "-" for nothing.
func OrDash[S ~string](s S) string { return cmp.Or(string(s), "-") }

// Because appends a reason, if there is one.
func Because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// Quoted returns a path as a shell takes it.
func Quoted(path string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	if strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// Flag puts the name of a flag in front of what is wrong with it, nil for nothing.
func Flag(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s: %w", name, err)
}

// Flags writes what is wrong with a query, a line each, under the flags that stand for its parameters.
func Flags(err error) error {
	if err == nil {
		return nil
	}
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		parameter, rest, _ := strings.Cut(line, ":")
		lines[i] = "--" + cmp.Or(flagOf[parameter], parameter) + ":" + rest
	}
	return errors.New(strings.Join(lines, "\n"))
}

// flagOf has the parameters of queries that have another name than their flag.
var flagOf = map[string]string{"token": "token-id", "from": "address"}
