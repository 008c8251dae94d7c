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
// "720h" or "30d". A day has 24 hours. It is at least a second, and
// whole seconds, since certificates know no smaller unit.
func parseTTL(v ast.Value) (d time.Duration, err error) {
	const want = `want a duration such as "720h" or "30d", or a number of seconds`
	switch v := v.(type) {
	case ast.Number:
		d, err = time.ParseDuration(string(v) + "s")
	case ast.String:
		if text, found := strings.CutSuffix(string(v), "d"); found {
			var days uint64
			days, err = strconv.ParseUint(text, 10, 16)
			d = time.Duration(days) * 24 * time.Hour
		} else {
			d, err = time.ParseDuration(string(v))
		}
	default:
		return 0, fmt.Errorf("is %s, %s", kind(v), want)
	}
	if err != nil {
		return 0, fmt.Errorf("is %.40s, %s", v, want)
	}
	if d < time.Second || d > maxTTL || d%time.Second != 0 {
		return 0, fmt.Errorf("is %v, want 1s to %v in whole seconds", d, maxTTL)
	}
	return d, nil
}
