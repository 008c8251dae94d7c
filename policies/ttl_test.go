package policies

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"
)

func TestParseTTL(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   any
		want time.Duration // 0: refused
	}{
		"hours":                {"720h", 720 * time.Hour},
		"days":                 {"30d", 720 * time.Hour},
		"days and hours":       {"1d12h", 36 * time.Hour},
		"no days and minutes":  {"0d5m", 5 * time.Minute},
		"seconds as a number":  {json.Number("3600"), time.Hour},
		"shortest":             {"1s", time.Second},
		"longest":              {"36500d", maxTTL},
		"longest, as a number": {json.Number("3153600000"), maxTTL},
		"a second too long":    {"36500d1s", 0},
		"too long a number":    {json.Number("3153600001"), 0},
		"far too long":         {"2562047h", 0},
		"beyond any number":    {json.Number("99999999999999999999"), 0},
		"zero":                 {"0s", 0},
		"zero days":            {"0d", 0},
		"zero as a number":     {json.Number("0"), 0},
		"negative":             {"-1h", 0},
		"negative number":      {json.Number("-60"), 0},
		"negative days":        {"-1d", 0},
		"negative rest":        {"2d-1h", 0},
		"signed":               {"1d+1h", 0},
		"half a second":        {"500ms", 0},
		"not whole":            {"1.5s", 0},
		"fraction":             {json.Number("1.5"), 0},
		"fraction of a day":    {"1.5d", 0},
		"exponent":             {json.Number("1e3"), 0},
		"no unit":              {"720", 0},
		"weeks":                {"2w", 0},
		"two days":             {"1d1d", 0},
		"empty":                {"", 0},
		"blank":                {" 1h", 0},
		"boolean":              {true, 0},
		"null":                 {nil, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := parseTTL(tt.in)
			if got != tt.want || (err == nil) != (tt.want != 0) {
				t.Errorf("parseTTL(%v) = %v, %v, want %v", tt.in, got, err, tt.want)
			}
		})
	}
}

// FuzzParseTTL checks that what is accepted is within bounds, and that the same
// lifetime written as a number of seconds means the same.
func FuzzParseTTL(f *testing.F) {
	for _, s := range []string{"720h", "30d", "1d12h", "0d", "-1h", "1e9h", "99999999999d", "dd", "9999999h9999999h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := parseTTL(s)
		if err != nil {
			if d != 0 {
				t.Fatalf("%q: %v along with an error", s, d)
			}
			return
		}
		if d < time.Second || d > maxTTL || d%time.Second != 0 {
			t.Fatalf("%q: %v, want 1s to %v in whole seconds", s, d, maxTTL)
		}
		again, err := parseTTL(json.Number(strconv.FormatInt(int64(d/time.Second), 10)))
		if err != nil || again != d {
			t.Fatalf("%q is %v, as seconds %v, %v", s, d, again, err)
		}
	})
}
