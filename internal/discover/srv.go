package discover

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"muster/internal/wire"
)

// maxRecords bounds the records used of one answer, the best by priority, and among
// equals those that are drawn: a cut before that would leave the same out each time. A
// node that has tried this many brokers in vain gains nothing by more.
const maxRecords = 64

// maxAliases bounds a chain of CNAME records in one answer; chosen, like most
// resolvers' limits, above any chain that is meant.
const maxAliases = 8

// srv is one usable SRV record.
type srv struct {
	target   string // lower-case host name without trailing dot
	port     uint16 // not 0
	priority uint16
	weight   uint16
}

// An answer is what a name server said of one name.
type answer struct {
	name   string // asked for, without trailing dot
	server string // asked, as address and port
	exists bool   // false: NXDOMAIN
	found  []*dns.SRV
}

// newAnswer takes from m the SRV records that belong to name, directly or by
// CNAME records of the same message. Records of other names are ignored.
func newAnswer(name, server string, m *dns.Msg) answer {
	a := answer{name: name, server: server, exists: m.Rcode != dns.RcodeNameError}
	owner := dns.CanonicalName(name)
	for range maxAliases {
		for _, rr := range m.Answer {
			if s, ok := rr.(*dns.SRV); ok && dns.CanonicalName(s.Hdr.Name) == owner && s.Hdr.Class == dns.ClassINET {
				a.found = append(a.found, s)
			}
		}
		i := slices.IndexFunc(m.Answer, func(rr dns.RR) bool {
			c, ok := rr.(*dns.CNAME)
			return ok && dns.CanonicalName(c.Hdr.Name) == owner && c.Hdr.Class == dns.ClassINET
		})
		if len(a.found) > 0 || i < 0 {
			break
		}
		owner = dns.CanonicalName(m.Answer[i].(*dns.CNAME).Target)
	}
	return a
}

// usable returns the records that can be tried, best priority first. The error says why
// there is none that names a host and a port.
//
// RFC 2782 forbids targets that are aliases. Whether one is shows only when it
// is dialed, and then it works: nothing is gained by refusing it here.
func (a answer) usable() ([]srv, error) {
	var records []srv
	first := ""
	for _, r := range slices.SortedStableFunc(slices.Values(a.found), func(x, y *dns.SRV) int { return cmp.Compare(x.Priority, y.Priority) }) {
		target, err := wire.ParseIdentity(strings.ToLower(strings.TrimSuffix(r.Target, ".")))
		if err == nil && r.Port == 0 {
			err = fmt.Errorf("%s has port 0", target)
		}
		if err != nil {
			first = cmp.Or(first, err.Error())
			continue
		}
		s := srv{target: string(target), port: r.Port, priority: r.Priority, weight: r.Weight}
		// One place listed twice is one place, of its best priority: a second weight
		// would only favor it by accident.
		if !slices.ContainsFunc(records, func(o srv) bool { return o.target == s.target && o.port == s.port }) {
			records = append(records, s)
		}
	}
	switch {
	case len(records) > 0:
		return records, nil
	case !a.exists:
		return nil, fmt.Errorf("%s says that %s does not exist", a.server, a.name)
	case len(a.found) == 0:
		return nil, fmt.Errorf("%s says that %s has no SRV record", a.server, a.name)
	default:
		return nil, fmt.Errorf("no target of %s can be used: %s", a.name, first)
	}
}

// order returns at most [maxRecords] in the order to try, by the algorithm of RFC 2782, page
// 4: lower priorities first, and among equals a weighted draw without
// replacement. Records is sorted by priority and is left as it is.
func order(records []srv, random func(n int64) int64) []srv {
	var ordered []srv
	for rest := slices.Clone(records); len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].priority == rest[0].priority {
			n++
		}
		ordered = append(ordered, draw(rest[:n], random)...)
		rest = rest[n:]
	}
	return ordered[:min(len(ordered), maxRecords)]
}

// draw orders records of one priority in place. The RFC lets them be in any
// order to begin with, except that those of weight 0 come first; here that is
// a random order, so that records which all have weight 0 are spread too.
func draw(records []srv, random func(n int64) int64) []srv {
	for i := len(records) - 1; i > 0; i-- {
		j := int(random(int64(i) + 1))
		records[i], records[j] = records[j], records[i]
	}
	slices.SortStableFunc(records, func(x, y srv) int {
		return cmp.Compare(min(x.weight, 1), min(y.weight, 1))
	})
	for rest := records; len(rest) > 1; rest = rest[1:] {
		var sum int64
		for _, r := range rest {
			sum += int64(r.weight)
		}
		// A number from 0 to the sum, both included, selects the first record
		// whose running sum is that number or more.
		number, running, i := random(sum+1), int64(0), 0
		for running = int64(rest[0].weight); running < number; running += int64(rest[i].weight) {
			i++
		}
		selected := rest[i]
		copy(rest[1:i+1], rest[:i]) // keeps the others in their order
		rest[0] = selected
	}
	return records
}
