package conffile

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// ErrEdit means that a YAML file is written in a way that [EditYAML] does not
// dare to change. A person can.
var ErrEdit = errors.New("cannot be edited by a program")

// EditYAML returns text with other values of keys in the block mapping under the
// top-level key, and with lines added at its end, which are indented as the
// mapping's own. Everything else, comments included, stays as it is, byte by
// byte. Only plain and quoted texts on one line are replaced; the error wraps
// [ErrEdit] otherwise. The caller reads the result again to see that it says
// what it should.
func EditYAML(text []byte, key string, values map[string]string, lines []string) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("not YAML: %s", plain(trimYAML(err.Error()), text))
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
		return nil, fmt.Errorf("%w: not one document", ErrEdit)
	}
	block := member(doc.Content[0], key)
	if block == nil || block.Kind != yaml.MappingNode || block.Style&yaml.FlowStyle != 0 || len(block.Content) == 0 {
		return nil, fmt.Errorf("%w: %s is no mapping with a line for each key", ErrEdit, key)
	}
	file := bytes.SplitAfter(text, []byte("\n"))
	last := lastLine(block)
	// A lone CR, NEL, LS and PS end lines of YAML as well, and it may be UTF-16.
	if last > len(file) || bytes.ContainsAny(bytes.ReplaceAll(text, []byte("\r\n"), nil), "\r\u0085\u2028\u2029") {
		return nil, fmt.Errorf("%w: it has lines that end in another way than with LF or CRLF, or is not UTF-8", ErrEdit)
	}
	for name, value := range values {
		n := member(block, name)
		if n == nil || n.Kind != yaml.ScalarNode || n.Anchor != "" {
			return nil, fmt.Errorf("%w: %s.%s is no text", ErrEdit, key, name)
		}
		line, err := replaceScalar(file[n.Line-1], n, value)
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %w", key, name, err)
		}
		file[n.Line-1] = line
	}
	if !bytes.HasSuffix(file[last-1], []byte("\n")) {
		file[last-1] = append(file[last-1], '\n')
	}
	indent := strings.Repeat(" ", block.Content[0].Column-1)
	var out bytes.Buffer
	for i, line := range file {
		out.Write(line)
		if i != last-1 {
			continue
		}
		for _, l := range lines {
			out.WriteString(indent + l + "\n")
		}
	}
	return out.Bytes(), nil
}

// member returns the value of a key in a mapping, or nil.
func member(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// lastLine returns the last line on which something of n begins. Where that is a
// text of several lines, what is added behind it is seen to be wrong when the
// result is read again.
func lastLine(n *yaml.Node) int {
	last := n.Line
	for _, c := range n.Content {
		last = max(last, lastLine(c))
	}
	return last
}

// replaceScalar puts value in place of the scalar n in its line.
func replaceScalar(line []byte, n *yaml.Node, value string) ([]byte, error) {
	start := n.Column - 1
	for _, c := range line[:min(start, len(line))] {
		if c >= 0x80 { // columns count characters
			return nil, fmt.Errorf("%w: not ASCII before it", ErrEdit)
		}
	}
	if start >= len(line) {
		return nil, fmt.Errorf("%w: it is not where it should be", ErrEdit)
	}
	rest := line[start:]
	end := -1
	switch {
	case n.Style == 0 && n.Value != "" && bytes.HasPrefix(rest, []byte(n.Value)):
		end = len(n.Value)
	case n.Style == yaml.DoubleQuotedStyle || n.Style == yaml.SingleQuotedStyle:
		// What is between the quotes must be the value as it is: nothing escaped.
		if bytes.HasPrefix(rest[1:], []byte(n.Value)) && len(rest) > len(n.Value)+1 && rest[len(n.Value)+1] == rest[0] {
			end = len(n.Value) + 2
		}
	}
	if end < 0 {
		return nil, fmt.Errorf("%w: not a plain text on one line", ErrEdit)
	}
	return []byte(string(line[:start]) + YAMLText(value) + string(rest[end:])), nil
}

// YAMLText returns s as a text in YAML, quoted where that is not plainly one.
func YAMLText(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-"
	first := "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ/."
	if s != "" && strings.Trim(s, safe) == "" && strings.ContainsRune(first, rune(s[0])) && strings.ContainsRune(s, '/') {
		return s
	}
	return strconv.QuoteToASCII(s) // its escapes are YAML's, too
}
