package inputfile_test

import (
	"strings"
	"testing"
	"unicode/utf16"

	"muster/internal/inputfile"
)

// wide returns a text in UTF-16, little-endian, as Windows programs write it.
func wide(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		b.WriteByte(byte(u))
		b.WriteByte(byte(u >> 8))
	}
	return b.String()
}

// TestLine reads the forms in which people, editors and systems write one value. No error quotes the value.
func TestLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"hunter2":                       "hunter2",
		"\ufeffhunter2\r\n":             "hunter2",
		"\n\n \thunter2 \n\n":           "hunter2",
		"hunter2\r":                     "hunter2",
		"#hunter2":                      "#hunter2",
		"a=hunter2=":                    "a=hunter2=",
		"hun ter\t2":                    "hun ter\t2",
		"\"hunter2":                     "\"hunter2",
		"":                              "empty",
		" \r\n":                         "empty",
		"\ufeff":                        "empty",
		"# nothing\n#\n":                "nothing but comments",
		"# the secret\nhunter2\n":       "has a comment",
		"hunter2\nhunter2\n":            "has 2 lines",
		"\"hunter2\"":                   "is in quotes",
		"'hunter2'\n":                   "is in quotes",
		"MUSTER_SECRET=hunter2\n":       "has `NAME=`",
		"export TOKEN='hunter2'\n":      "has `NAME=`",
		"secret = hunter2\nname = x\n":  "has `NAME=`",
		"secret: hunter2\n":             "is YAML",
		"export X='hunter2'\n":          "has `NAME=`",
		"---\nsecret: hunter2\n":        "is YAML",
		"{\"secret\": \"hunter2\"}\n":   "is JSON",
		"{\n\"secret\": \"hunter2\"\n}": "is JSON",
		"{hunter2}":                     "{hunter2}",
		"“hunter2”\n":                   "is in quotes",
		"„hunter2“":                     "is in quotes",
		"‘hunter2’":                     "is in quotes",
		"hunter2\u200b\n":               "an invisible character",
		"hun\ufeffter2":                 "an invisible character",
		"\u202ahunter2":                 "an invisible character",
		"hunter2\u00a0\n":               "hunter2",
		"-----BEGIN PRIVATE KEY-----\n": "in PEM",
		"\xff\xfe" + wide("hunter2"):    "is in UTF-16",
		wide("hunter2\r\n"):             "is in UTF-16",
		"hunter2\x00\x00":               "control characters",
	} {
		got, err := inputfile.Line([]byte(in), "FILE", "a secret")
		switch {
		case err == nil && got != want:
			t.Errorf("Line of %q = %q, want %q", in, got, want)
		case err == nil:
		case !strings.HasPrefix(err.Error(), "FILE: ") || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "\n"):
			t.Errorf("Line of %q: %v, want one line that says %q", in, err, want)
		}
	}
}
