package policies

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

// maxTTL bounds a lifetime: beyond it, seconds added to a date would run past
// the year 9999 that certificates end at (RFC 5280 section 4.1.2.5). Any
// authority's own limit is far below.
const maxTTL = 100 * 365 * 24 * time.Hour

// parseTTL reads a lifetime: a number of seconds, or text such as "90m",
// "720h", "30d" or "1d12h". A day has 24 hours. It is at least a second, and
// whole seconds, since certificates know no smaller unit.
func parseTTL(v ast.Value) (time.Duration, error) {
	const want = `want a duration such as "720h" or "30d", or a number of seconds`
	var d time.Duration
	switch v := v.(type) {
	case ast.Number:
		n, err := strconv.ParseInt(string(v), 10, 64)
		if err != nil || n > int64(maxTTL/time.Second) {
			return 0, fmt.Errorf("is %.40q, %s", string(v), want)
		}
		d = time.Duration(max(n, 0)) * time.Second
	case ast.String:
		text, days := string(v), 0
		if before, after, found := strings.Cut(text, "d"); found {
			n, err := strconv.ParseUint(before, 10, 16)
			if err != nil {
				return 0, fmt.Errorf("is %.40q, %s", string(v), want)
			}
			text, days = after, int(n)
		}
		if text != "" || days == 0 {
			rest, err := time.ParseDuration(text)
			// A sign belongs to the whole, and a lifetime has none.
			if err != nil || strings.HasPrefix(text, "-") || strings.HasPrefix(text, "+") {
				return 0, fmt.Errorf("is %.40q, %s", string(v), want)
			}
			d = min(rest, maxTTL+1)
		}
		d += time.Duration(days) * 24 * time.Hour
	default:
		return 0, fmt.Errorf("is %s, %s", kind(v), want)
	}
	if d < time.Second || d > maxTTL || d%time.Second != 0 {
		return 0, fmt.Errorf("is %v, want 1s to %v in whole seconds", d, maxTTL)
	}
	return d, nil
}
