package policies

import (
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
)

func TestParseTTL(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   ast.Value
		want time.Duration // 0: refused
	}{
		"hours":                {ast.String("720h"), 720 * time.Hour},
		"days":                 {ast.String("30d"), 720 * time.Hour},
		"days and hours":       {ast.String("1d12h"), 36 * time.Hour},
		"seconds as a number":  {ast.Number("3600"), time.Hour},
		"shortest":             {ast.String("1s"), time.Second},
		"longest":              {ast.String("36500d"), maxTTL},
		"longest, as a number": {ast.Number("3153600000"), maxTTL},
		"a second too long":    {ast.String("36500d1s"), 0},
		"too long a number":    {ast.Number("3153600001"), 0},
		"far too long":         {ast.String("2562047h"), 0},
		"beyond any number":    {ast.Number("99999999999999999999"), 0},
		"zero":                 {ast.String("0s"), 0},
		"zero days":            {ast.String("0d"), 0},
		"zero as a number":     {ast.Number("0"), 0},
		"negative":             {ast.String("-1h"), 0},
		"negative number":      {ast.Number("-60"), 0},
		"negative days":        {ast.String("-1d"), 0},
		"negative rest":        {ast.String("2d-1h"), 0},
		"signed":               {ast.String("1d+1h"), 0},
		"half a second":        {ast.String("500ms"), 0},
		"not whole":            {ast.String("1.5s"), 0},
		"fraction":             {ast.Number("1.5"), 0},
		"fraction of a day":    {ast.String("1.5d"), 0},
		"exponent":             {ast.Number("1e3"), 0},
		"no unit":              {ast.String("720"), 0},
		"weeks":                {ast.String("2w"), 336 * time.Hour},
		"two days":             {ast.String("1d1d"), 48 * time.Hour},
		"empty":                {ast.String(""), 0},
		"blank":                {ast.String(" 1h"), 0},
		"boolean":              {ast.Boolean(true), 0},
		"null":                 {ast.Null{}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got time.Duration
			err := lifetime(&got, tt.in)
			if err == nil && got != tt.want || (err == nil) != (tt.want != 0) {
				t.Errorf("lifetime of %v: %v, %v, want %v", tt.in, got, err, tt.want)
			}
		})
	}
}
