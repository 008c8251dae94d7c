package fleet

import (
	"net/netip"
	"strconv"
	"strings"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/facts"
	"muster/provisioner/trust"
)

// A Reading is what the text of a search may mean.
type Reading struct {
	Of  string        // what has this value, for operators; "": the name
	Set func(*Filter) // selects the nodes
}

// minKey is the least number of digits of a key's fingerprint, as in `--fingerprint`.
const minKey = 8

// Readings returns what a text may mean, by its form: first a fact NAME=VALUE or an address, then a name (a prefix, or
// with * or ? a pattern), a serial number, the fingerprint of a key, the id of a token. The caller tries them in turn.
func Readings(text string) (all []Reading) {
	text = strings.TrimSpace(text)
	add := func(of string, set func(*Filter)) { all = append(all, Reading{of, set}) }
	if _, err := facts.ParseFilter(text); err == nil {
		add("fact", func(f *Filter) { f.Facts = append(f.Facts[:len(f.Facts):len(f.Facts)], text) })
		return all
	}
	if within, err := parseRange(text); err == nil {
		add("address", func(f *Filter) { f.within = within })
	}
	name, hash := wire.FoldName(text), wire.FoldHash(text)
	tid, key, serial := jwt.TokenID(hash), "", packSerial(hash)
	if _, mask := packKey(hash); mask != 0 && len(hash) >= minKey {
		key = hash
	}
	if len(hash) < 64 || key == "" {
		if strings.ContainsAny(name, "*?") {
			add("", func(f *Filter) { f.Match = wire.Pattern(name) })
		} else {
			add("", func(f *Filter) { f.Prefix = name })
		}
	}
	if serial != [16]byte{} {
		add("serial number", func(f *Filter) { f.serial = serial })
	}
	if key != "" {
		add("key", func(f *Filter) { f.key, f.mask = packKey(key) })
	}
	if trust.CheckTokenID(tid) == nil {
		add("token", func(f *Filter) { f.Token = tid })
	}
	return all
}

// searched is the part of a [Filter] that only searches set.
type searched struct {
	serial    [16]byte // zero: any
	key, mask uint64
	within    netip.Prefix // zero: any address
}

func (s *searched) finds(n *node) bool {
	return (s.serial == [16]byte{} || n.serial == s.serial) && n.key&s.mask == s.key &&
		(!s.within.IsValid() || s.within.Contains(netip.AddrFrom16(n.source).Unmap()))
}

// parseRange parses an address, or a range of addresses.
func parseRange(text string) (netip.Prefix, error) {
	within, err := netip.ParsePrefix(text)
	if err != nil {
		var at netip.Addr
		at, err = netip.ParseAddr(text)
		within = netip.PrefixFrom(at.Unmap(), at.Unmap().BitLen())
	}
	return within, err
}

// packAddress returns zero for what is no address.
func packAddress(text string) (b [16]byte) {
	if at, err := netip.ParseAddr(text); err == nil {
		b = at.As16()
	}
	return b
}

// packKey returns the first 64 bits of a hash, and which of them are known; zero for what is not hex.
func packKey(hash string) (key, mask uint64) {
	digits := min(len(hash), 16)
	key, err := strconv.ParseUint(hash[:digits], 16, 64)
	if err != nil || strings.Trim(hash, "0123456789abcdef") != "" {
		return 0, 0
	}
	shift := 4 * (16 - digits)
	return key << shift, ^uint64(0) << shift
}
