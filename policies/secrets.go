package policies

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Redacted replaces a secret.
const Redacted = "(secret)"

// secretWords are parts of the names of secrets, as Choria, Puppet and cloud providers use them. Case, "_", "-", "."
// and blanks are ignored.
var secretWords = []string{"passw", "passphrase", "secret", "token", "privatekey", "credential", "apikey", "accesskey",
	"psk", "presharedkey"}

// lower is the bit that makes an ASCII letter lowercase.
const lower = 'a' - 'A'

// secretMarks are texts by first byte with [lower] set. Every document with a secret contains one; a document without
// them is not decoded.
var secretMarks = [256][]string{
	'p':          {"pass", "private", "psk", "pre"},
	's':          {"secret"},
	't':          {"token"},
	'c':          {"credential"},
	'a':          {"api", "access"},
	'e':          {"eyj"},
	'\\' | lower: {`\u`},
}

func marked(text []byte) bool {
	for i := range len(text) - 1 {
		for _, mark := range secretMarks[text[i]|lower] {
			if text[i+1]|lower == mark[1] && len(text)-i >= len(mark) &&
				strings.EqualFold(string(text[i:i+len(mark)]), mark) {
				return true
			}
		}
	}
	return false
}

var ignoredInNames = strings.NewReplacer("_", "", "-", "", ".", "", " ", "")

// secretShape is a secret under any name: a JWT, a part of one, or a private key.
var secretShape = regexp.MustCompile(`eyJ[A-Za-z0-9_-]{6,}(\.[A-Za-z0-9_-]*)*|` +
	`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)`)

// IsSecretName reports whether a value with this name must not be shown.
func IsSecretName(name string) bool {
	name = ignoredInNames.Replace(strings.ToLower(name))
	return slices.ContainsFunc(secretWords, func(word string) bool { return strings.Contains(name, word) })
}

// shapes redacts every match of secretShape.
func shapes(text string) string {
	if !strings.Contains(text, "eyJ") && !strings.Contains(text, "-----BEGIN ") { // the beginnings of secretShape
		return text
	}
	return secretShape.ReplaceAllString(text, Redacted)
}

// namedValue is a literal in Rego or JSON, after the name of its key or variable.
var namedValue = regexp.MustCompile("([\\w.-]+)([\"`]?\\]?\\s*(?::=|==|[:=])\\s*)(?:\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`)")

// hideValues redacts literals with the name of a secret.
func hideValues(text string) string {
	return namedValue.ReplaceAllStringFunc(shapes(text), func(found string) string {
		m := namedValue.FindStringSubmatch(found)
		if !IsSecretName(m[1]) {
			return found
		}
		return m[1] + m[2] + `"` + Redacted + `"`
	})
}

// HasSecret reports whether a text contains a JWT or a private key.
func HasSecret(text string) bool { return shapes(text) != text }

// withoutSecrets returns a complete, redacted copy of in, and whether it redacted anything.
func withoutSecrets(in *Input) (out *Input, found bool) {
	out = in.complete()
	for _, document := range []*json.RawMessage{&out.Facts, &out.Token.Extensions, &out.Evidence} {
		clean, secret := redactJSON(*document)
		*document, found = clean, found || secret
	}
	if out.CSR.Challenge != "" {
		out.CSR.Challenge, found = Redacted, true
	}
	for name, text := range out.CSR.Extensions {
		if clean := shapes(text); clean != text || IsSecretName(name) {
			out.CSR.Extensions, found = maps.Clone(out.CSR.Extensions), true
			out.CSR.Extensions[name] = Redacted
		}
	}
	// The node chooses the names of its certificate request.
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

// hide redacts a secret, which may be empty, in the reasons.
func (d *Decision) hide(secret string) {
	if secret == "" {
		return
	}
	for _, list := range [][]string{d.Deny, d.Reasons} {
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], secret, Redacted)
		}
	}
}

// redactJSON reports whether the document had a secret.
func redactJSON(b json.RawMessage) (json.RawMessage, bool) {
	if !marked(b) {
		return b, false
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber() // keeps the spelling
	var document any
	if d.Decode(&document) != nil {
		return json.RawMessage(`"` + Redacted + `"`), true // it cannot be redacted in part
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

// redactValue works in place.
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
			if clean := shapes(name); clean != name { // the name itself holds a secret
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

var (
	// builtinError is an error of a built-in function, which may quote its operands in many ways.
	builtinError = regexp.MustCompile(`(?s)(eval_builtin_error: [\w.]+): .*`)

	// quoted is a value in any other error.
	quoted = regexp.MustCompile("(?s)\"(?:[^\"\\\\]|\\\\.)*\"?|`[^`]*`?")
)

// redact removes values, which may be secret facts, from an evaluation's error. File, line and function stay.
func redact(text string) string {
	text = builtinError.ReplaceAllString(text, "$1 does not take its operands")
	return quoted.ReplaceAllString(text, `"..."`)
}
