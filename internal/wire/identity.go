package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Limits of RFC 1123 section 2.1 and RFC 1035 section 2.3.4.
const (
	MaxIdentityBytes = 253
	MaxLabelBytes    = 63
)

// ErrIdentity means an invalid identity.
var ErrIdentity = errors.New("not a valid identity")

// An Identity is a node's full host name. It becomes part of subjects, keys and file names, so only [ParseIdentity]
// may make one.
type Identity string

// ParseIdentity accepts lower-case RFC 1123 names whose last label is no number, so no IP address in any spelling that
// inet_aton(3) takes. It refuses other spellings and does not normalize them. The error wraps [ErrIdentity].
func ParseIdentity(s string) (Identity, error) {
	if s == "" {
		return "", fmt.Errorf("%w: empty", ErrIdentity)
	}
	if len(s) > MaxIdentityBytes {
		return "", fmt.Errorf("%w: %d bytes, limit %d", ErrIdentity, len(s), MaxIdentityBytes)
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if err := checkLabel(label); err != nil {
			return "", fmt.Errorf("%w: %q: %w", ErrIdentity, s, err)
		}
		last = label
	}
	if isNumber(last) {
		return "", fmt.Errorf("%w: %q: the last label is a number, as in an IP address", ErrIdentity, s)
	}
	return Identity(s), nil
}

// isNumber reports whether inet_aton(3) takes a label for a number.
func isNumber(label string) bool {
	hex, isHex := strings.CutPrefix(label, "0x")
	return strings.Trim(label, "0123456789") == "" || isHex && strings.Trim(hex, "0123456789abcdef") == ""
}

func checkLabel(label string) error {
	switch {
	case label == "":
		return errors.New("an empty label (leading, trailing or doubled dot)")
	case len(label) > MaxLabelBytes:
		return fmt.Errorf("a label of %d bytes, limit %d", len(label), MaxLabelBytes)
	case label[0] == '-' || label[len(label)-1] == '-':
		return fmt.Errorf("label %q begins or ends with a hyphen", label)
	}
	for _, c := range label {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return fmt.Errorf("label %q has %q, want a-z, 0-9 and -", label, c)
		}
	}
	return nil
}

// SubjectToken returns the identity as one token of a subject, with "_" for dots. So a subject of "web" does not
// cover "web.example.net".
func (id Identity) SubjectToken() string { return strings.ReplaceAll(string(id), ".", "_") }

// ParseSubjectToken inverts [Identity.SubjectToken].
func ParseSubjectToken(s string) (Identity, error) {
	if strings.Contains(s, ".") {
		return "", fmt.Errorf("%w: subject token %q has a dot", ErrIdentity, s)
	}
	return ParseIdentity(strings.ReplaceAll(s, "_", "."))
}

// FoldName returns a name as people and systems write it in the form that [ParseIdentity] and [ParsePattern] accept:
// without blanks around it and the dot at its end, and in lower case. Letters beyond ASCII stay and are refused: some
// have an ASCII letter as lower case.
func FoldName(s string) string {
	s = strings.TrimSuffix(strings.TrimSpace(s), ".")
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

// ParseName is [ParseIdentity] of a name from a person, a file or the system.
func ParseName(s string) (Identity, error) { return ParseIdentity(FoldName(s)) }

// ParseNamePattern is [ParsePattern] of a pattern from a person or a file.
func ParseNamePattern(s string) (Pattern, error) { return ParsePattern(FoldName(s)) }

// FoldHash returns a hash in hex as other programs print it in the form of our own: in lower case, without blanks,
// colons and `SHA256:` in front.
func FoldHash(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	return strings.NewReplacer(":", "", " ", "").Replace(strings.TrimPrefix(s, "sha256:"))
}

// ErrReserved means a name or an address that no node may have.
var ErrReserved = errors.New("reserved")

// Each machine resolves the first ones to itself. Puppet's CA has the rest as certificates and paths of its own.
var reservedNames = []string{
	"localhost4", "localhost6", "localhost.localdomain", "localhost4.localdomain4", "localhost6.localdomain6",
	"ip6-localhost", "ip6-loopback",
	"puppet", "ca", "autosign", "validate",
}

// Choria's clients are certificates below its two domains. All names below localhost lead to the machine itself (RFC
// 6761).
var reservedDomains = []string{".choria", ".mcollective", ".localhost"}

// CheckReserved returns an [ErrReserved] for a name that no installation gives to a node.
func CheckReserved(id Identity) error {
	name := string(id)
	domain := name[max(strings.LastIndexByte(name, '.'), 0):]
	if name == "localhost" || slices.Contains(reservedDomains, domain) || slices.Contains(reservedNames, name) {
		return fmt.Errorf("%s is %w: it is no node's own name", name, ErrReserved)
	}
	return nil
}

// CheckReserved returns an [ErrReserved] if the pattern selects reserved names only. It looks at one example.
func (p Pattern) CheckReserved() error { return CheckReserved(p.Example()) }

// Example returns a name that the pattern selects.
func (p Pattern) Example() Identity {
	return Identity(strings.NewReplacer("**", "x", "*", "x", "?", "x").Replace(string(p)))
}

// ParseNodeAddress reads an IP address that leads to the same machine from everywhere. An IPv4 address in an IPv6 one
// is returned as IPv4, as verifiers of certificates see it.
func ParseNodeAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil {
		return a, fmt.Errorf("address %.60q: want an IP address, like 192.0.2.1 or 2001:db8::1", s)
	}
	if a = a.Unmap(); a.Zone() != "" || !a.IsGlobalUnicast() {
		return a, fmt.Errorf("address %s is %w: want one that leads to one machine from everywhere", a,
			ErrReserved)
	}
	return a, nil
}
