package conffile_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"muster/internal/conffile"
)

func TestEditYAML(t *testing.T) {
	t.Parallel()
	const before = `# at the top
name: x
ca:   # the authority
  # about the root
  root: ca/root.pem     # pinned
  certificate: "ca/issuing.pem"
  key: 'ca/key.pem'

  # an example:
  # previous: []
keys: {}  # none
`
	const want = `# at the top
name: x
ca:   # the authority
  # about the root
  root: ca-2/root.pem     # pinned
  certificate: "with blank/x"
  key: /abs/key.pem
  previous:
    - root: ca/root.pem

  # an example:
  # previous: []
keys: {}  # none
`
	values := map[string]string{"root": "ca-2/root.pem", "certificate": "with blank/x", "key": "/abs/key.pem"}
	lines := []string{"previous:", "  - root: ca/root.pem"}
	got, err := conffile.EditYAML([]byte(before), "ca", values, lines)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("EditYAML (-want +got):\n%s", diff)
	}
	got, err = conffile.EditYAML([]byte("ca:\n    root: a"), "ca", map[string]string{"root": "b/c"}, []string{"more: d"})
	if diff := cmp.Diff("ca:\n    root: b/c\n    more: d\n", string(got)); err != nil || diff != "" {
		t.Errorf("EditYAML without a last line end: %v (-want +got):\n%s", err, diff)
	}
}

func TestEditYAMLDoesNotDare(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"flow style":         "ca: {root: a}\n",
		"no mapping":         "ca: root\n",
		"no such key":        "name: x\n",
		"no value":           "ca:\n  other: a\n",
		"an empty value":     "ca:\n  root:\n",
		"a list":             "ca:\n  root: [a]\n",
		"an anchor":          "ca:\n  root: &x a\n",
		"an alias":           "x: &x a\nca:\n  root: *x\n",
		"folded":             "ca:\n  root: >\n    a\n",
		"over two lines":     "ca:\n  root: a\n    b\n",
		"escaped":            "ca:\n  root: \"a\\x41\"\n",
		"a quote doubled":    "ca:\n  root: 'a''b'\n",
		"after other script": "ca: {}\nç: x\n",
		"a sequence":         "- a\n",
		"nothing":            "",
		"lines of CR":        "ca:\r root: a",
		"CR, and lines":      "ca:\r root: 'a'\n\n",
		"NEL, LS and PS":     "# \u0085 \u2028 \u2029\nca:\n  root: a\n",
		"UTF-16":             utf16LE("ca:\u2028 root: a"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := conffile.EditYAML([]byte(text), "ca", map[string]string{"root": "b"}, nil); got != nil || !errors.Is(err, conffile.ErrEdit) {
				t.Errorf("EditYAML = %q, %v, want %v", got, err, conffile.ErrEdit)
			}
		})
	}
	if got, err := conffile.EditYAML([]byte("a: [\n"), "ca", nil, nil); got != nil || err == nil {
		t.Errorf("EditYAML of what is no YAML = %q, %v", got, err)
	}
}

// utf16LE returns a text in UTF-16, with the mark that says so.
func utf16LE(s string) string {
	b := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, u)
	}
	return string(b)
}
