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

// lower is the bit that makes a letter of ASCII a lower-case one.
const lower = 'a' - 'A'

// secretMarks are what a text with a secret has in it, by its first byte with [lower] set: a word of the above as it may be
// written, or its part before a separator, a JWT, a private key in PEM, and the escape that could spell any of them. A
// text with none of them is not decoded.
var secretMarks = [256][]string{
	'p':          {"pass", "private", "psk"},
	's':          {"secret"},
	't':          {"token"},
	'c':          {"credential"},
	'a':          {"api", "access"},
	'e':          {"eyj"},
	'\\' | lower: {`\u`},
}

// marked reports whether a text has one of the marks.
func marked(text []byte) bool {
	for i := range len(text) - 1 {
		for _, mark := range secretMarks[text[i]|lower] {
			if text[i+1]|lower == mark[1] && len(text)-i >= len(mark) && strings.EqualFold(string(text[i:i+len(mark)]), mark) {
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
func shapes(text string) string {
	if !strings.Contains(text, "eyJ") && !strings.Contains(text, "-----BEGIN ") { // what each shape begins with
		return text
	}
	return secretShape.ReplaceAllString(text, Redacted)
}

// HasSecret reports whether a text has in it what is a secret whatever it is called.
func HasSecret(text string) bool { return shapes(text) != text }

// withoutSecrets returns a complete copy of in without what looks like a secret, and whether anything did.
func withoutSecrets(in *Input) (out *Input, found bool) {
	out = in.complete()
	for _, document := range []*json.RawMessage{&out.Facts, &out.Token.Extensions, &out.Evidence} {
		clean, secret := redactJSON(*document)
		*document, found = clean, found || secret
	}
	// The names of a certificate request are whatever the node wrote there.
	for _, list := range []*[]string{&out.CSR.DNSNames, &out.CSR.URIs, &out.CSR.Emails} {
		for i, name := range *list {
			if clean := shapes(name); clean != name {
				*list, found = slices.Clone(*list), true
				(*list)[i] = clean
			}
		}
	}
	return out, found
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
