package helper_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/provisioner/helper"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		line string
		want []string // nil: refused
	}{
		"one word":           {"/usr/local/bin/helper", []string{"/usr/local/bin/helper"}},
		"with arguments":     {"helper --site ams -v", []string{"helper", "--site", "ams", "-v"}},
		"many blanks":        {" \thelper   x\n", []string{"helper", "x"}},
		"single quotes":      {`helper 'a b' c`, []string{"helper", "a b", "c"}},
		"double quotes":      {`helper "a b" c`, []string{"helper", "a b", "c"}},
		"quotes in quotes":   {`helper "it's" 'so "so"'`, []string{"helper", "it's", `so "so"`}},
		"inside a word":      {`helper --name='a b'c`, []string{"helper", "--name=a bc"}},
		"empty argument":     {`helper '' ""`, []string{"helper", "", ""}},
		"backslash":          {`helper a\ b \'`, []string{"helper", "a b", "'"}},
		"backslash, double":  {`helper "a\"b\\c\d"`, []string{"helper", `a"b\c\d`}},
		"backslash, single":  {`helper 'a\b'`, []string{"helper", `a\b`}},
		"no shell":           {`helper $HOME *.x | sh; & > y`, []string{"helper", "$HOME", "*.x", "|", "sh;", "&", ">", "y"}},
		"empty":              {"", nil},
		"blank":              {" \t", nil},
		"nothing quoted":     {`''`, nil},
		"open single quote":  {`helper 'a b`, nil},
		"open double quote":  {`helper "a b`, nil},
		"backslash at end":   {`helper a\`, nil},
		"NUL":                {"helper a\x00b", nil},
		"open, quote inside": {`helper "it's`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := helper.Split(tt.line)
			if (err != nil) != (tt.want == nil) || err != nil && !errors.Is(err, helper.ErrCommand) {
				t.Fatalf("Split(%q) error = %v", tt.line, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("Split(%q): -want +got\n%s", tt.line, diff)
			}
		})
	}
}
