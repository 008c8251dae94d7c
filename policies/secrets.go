package policies

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// Redacted stands where a value was left out.
const Redacted = "(secret)"

// secretWords are parts of names whose values are kept and shown nowhere. In
// names, case, "_", "-", "." and blanks do not count. Chosen: what configurations
// and facts of Choria, Puppet and cloud providers call their secrets.
var secretWords = []string{"passw", "passphrase", "secret", "token", "privatekey", "credential", "apikey", "accesskey", "psk"}

// secretMarks are what a text with a secret has in it, whatever its case: a word of
// the above as it may be written, a JWT, a private key in PEM. It is only a quick
// look: what has none of them is not taken apart.
var secretMarks = []string{
	"passw", "passphrase", "secret", "token", "private", "credential", "api", "access", "psk", "eyj",
	`\u`, // an escape could spell any of them
}

// markStarts has a bit for each two bytes, folded by fold, with which a mark
// begins: a byte of a text then costs a nanosecond, and facts have 20,000.
var markStarts = func() (starts [1 << 10]uint64) {
	for _, mark := range secretMarks {
		at := fold(mark[0], mark[1])
		starts[at/64] |= 1 << (at % 64)
	}
	return starts
}()

func fold(a, b byte) uint16 { return uint16(a|0x20)<<8 | uint16(b|0x20) }

// marked reports whether a text has one of the marks.
func marked(b []byte) bool {
	for i := 1; i < len(b); i++ {
		at := fold(b[i-1], b[i])
		if markStarts[at/64]&(1<<(at%64)) == 0 {
			continue
		}
		rest := b[i-1:]
		for _, mark := range secretMarks {
			if len(rest) >= len(mark) && strings.EqualFold(string(rest[:len(mark)]), mark) {
				return true
			}
		}
	}
	return false
}

var ignoredInNames = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

// secretShape is what is a secret whatever it is called: a JWT, or what is left
// of one, or a private key.
var secretShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*|-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)

// IsSecretName reports whether what is called so is to be shown nowhere.
func IsSecretName(name string) bool {
	name = ignoredInNames.Replace(strings.ToLower(name))
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}

// shapes returns text without what has the shape of a secret.
func shapes(text string) string { return secretShape.ReplaceAllString(text, Redacted) }

// withoutSecrets returns a copy of in without what looks like a secret, and
// whether anything did. What is not replaced is shared with in.
func withoutSecrets(in *Input) (*Input, bool) {
	out, found := *in, false
	for _, free := range []*json.RawMessage{&out.Facts, &out.Token.Extensions, &out.Evidence} {
		if b, ok := redactJSON(*free); ok {
			*free, found = b, true
		}
	}
	// The names of a certificate request are whatever the node wrote there.
	for _, list := range []*[]string{&out.CSR.DNSNames, &out.CSR.URIs, &out.CSR.Emails} {
		for i, name := range *list {
			if clean := shapes(name); clean != name {
				*list = slices.Clone(*list)
				(*list)[i], found = clean, true
			}
		}
	}
	return &out, found
}

// redactJSON returns a document without its secrets, and whether it had any.
func redactJSON(b json.RawMessage) (json.RawMessage, bool) {
	if !marked(b) {
		return b, false
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // as it was written
	var document any
	if d.Decode(&document) != nil {
		return json.RawMessage(`"` + Redacted + `"`), true // what cannot be read cannot be cleaned
	}
	found := false
	document = redactValue(document, &found)
	if !found {
		return b, false
	}
	clean, err := json.Marshal(document)
	if err != nil {
		return json.RawMessage(`"` + Redacted + `"`), true
	}
	return clean, true
}

// redactValue returns a decoded value without its secrets, in place.
func redactValue(v any, found *bool) any {
	switch v := v.(type) {
	case string:
		clean := shapes(v)
		*found = *found || clean != v
		return clean
	case []any:
		for i := range v {
			v[i] = redactValue(v[i], found)
		}
	case map[string]any:
		for name, below := range v {
			if clean := shapes(name); clean != name { // as a name it is no better
				delete(v, name)
				v[clean], *found = Redacted, true
				continue
			}
			if _, flag := below.(bool); IsSecretName(name) && below != nil && !flag {
				v[name], *found = Redacted, true
				continue
			}
			v[name] = redactValue(below, found)
		}
	}
	return v
}
