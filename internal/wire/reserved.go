package wire

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

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
