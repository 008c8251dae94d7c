package wire

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// EncodeSealed returns what was sealed in an envelope, as encoding/json writes it.
// Replies have no key and no encapsulated key. It is for what package seal has made: key
// is base64url, and ciphertext is not empty.
func EncodeSealed(key string, encapsulated, ciphertext []byte) []byte {
	b := make([]byte, 0, len(sealedStart)+len(key)+len(`"key":"","enc":"","ct":""}`)+
		base64.StdEncoding.EncodedLen(len(encapsulated))+base64.StdEncoding.EncodedLen(len(ciphertext)))
	b = append(b, sealedStart...)
	if key != "" {
		b = append(append(append(b, `"key":"`...), key...), `",`...)
	}
	if len(encapsulated) > 0 {
		b = append(base64.StdEncoding.AppendEncode(append(b, `"enc":"`...), encapsulated), `",`...)
	}
	return append(base64.StdEncoding.AppendEncode(append(b, `"ct":"`...), ciphertext), `"}`...)
}

// appendReply appends a reply that enrolls or that takes a confirmation, as
// [marshal] writes it (FuzzAppendReply compares), without reflection. Other
// replies are not its business.
func appendReply(b []byte, r *Reply) []byte {
	b = appendText(append(b, `{"id":`...), r.ID)
	b = appendText(append(b, `,"installation":`...), r.Installation)
	if e := r.Enrolled; e != nil {
		b = appendText(append(b, `,"enrolled":{"serial":`...), e.Serial)
		b = appendText(append(b, `,"certificate":`...), e.Certificate)
		b = appendText(append(b, `,"ca":`...), e.CA)
		b = appendTexts(append(b, `,"configuration":`...), e.Configuration)
		if len(e.ActionPolicies) > 0 {
			b = appendTexts(append(b, `,"action_policies":`...), e.ActionPolicies)
		}
		if len(e.OPAPolicies) > 0 {
			b = appendTexts(append(b, `,"opa_policies":`...), e.OPAPolicies)
		}
		b = appendText(append(b, `,"digest":`...), e.Digest)
		b = append(b, '}')
	}
	if a := r.Applied; a != nil {
		b = appendText(append(b, `,"applied":{"serial":`...), a.Serial)
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendTexts appends a map in the order of its keys.
func appendTexts(b []byte, m map[string]string) []byte {
	if m == nil {
		return append(b, "null"...)
	}
	b = append(b, '{')
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, k)
		b = appendText(append(b, ':'), m[k])
	}
	return append(b, '}')
}

// appendText appends a string.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	start := 0 // of what is not yet appended
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		size, escape := 1, ""
		switch {
		case c == '"':
			escape = `\"`
		case c == '\\':
			escape = `\\`
		case c == '\n':
			escape = `\n`
		case c == '\r':
			escape = `\r`
		case c == '\t':
			escape = `\t`
		case c == '\b':
			escape = `\b`
		case c == '\f':
			escape = `\f`
		case c < 0x20:
			escape = `\u00` + strconv.FormatInt(int64(c)+0x100, 16)[1:]
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				escape = `\ufffd`
			case r == '\u2028':
				escape = `\u2028`
			case r == '\u2029':
				escape = `\u2029`
			}
		}
		if escape != "" {
			b = append(append(b, s[start:i]...), escape...)
			start = i + size
		}
		i += size
	}
	return append(append(b, s[start:]...), '"')
}
