package verb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Instant returns a local time as text, "-" for the zero time. Flags that take times accept it.
func Instant(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.RFC3339)
}

// Counted returns a number and its noun.
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// Nodes counts nodes.
func Nodes(n int) string { return Counted(n, "node", "nodes") }

// Tallied returns a list of counts, the largest first.
func Tallied[K ~string, N int | int64](counts map[K]N) string {
	keys := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(keys, func(a, b K) int { return cmp.Compare(counts[b], counts[a]) })
	var list []string
	for _, k := range keys {
		list = append(list, fmt.Sprintf("%d %s", counts[k], k))
	}
	return cmp.Or(strings.Join(list, ", "), "none")
}

// Joined returns a list separated by commas.
func Joined[S ~string](list []S) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = string(s)
	}
	return strings.Join(parts, ", ")
}

// Short returns the first 16 digits of a hash, enough for people to compare.
func Short(hash string) string { return hash[:min(16, len(hash))] }

// OrDash returns "-" for an empty text.
func OrDash[S ~string](s S) string { return cmp.Or(string(s), "-") }

// Because returns a reason after a colon, or nothing.
func Because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// Quoted quotes a path for a shell, if needed.
func Quoted(path string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-"
	if strings.Trim(path, plain) == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// Flag puts the name of a flag before err. Nil stays nil.
func Flag(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s: %w", name, err)
}
