package policies

import (
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"

	"muster/internal/span"
)

// maxTTL keeps dates before the year 9999, the last that certificates can express (RFC 5280 section 4.1.2.5).
const maxTTL = 100 * 365 * 24 * time.Hour

// parseTTL reads seconds or a span such as "12h" or "30d". Certificates have whole seconds.
func parseTTL(v ast.Value) (d time.Duration, err error) {
	const want = `want a span such as "12h" or "30d", or a number of seconds`
	switch v := v.(type) {
	case ast.Number:
		d, err = time.ParseDuration(string(v) + "s")
	case ast.String:
		d, err = span.Parse(string(v))
	default:
		return 0, fmt.Errorf("is %s, %s", kind(v), want)
	}
	if err != nil {
		return 0, fmt.Errorf("is %.40s, %s", v, want)
	}
	if d < time.Second || d > maxTTL || d%time.Second != 0 {
		return 0, fmt.Errorf("is %v, want 1s to %s in whole seconds", d, span.Format(maxTTL))
	}
	return d, nil
}
