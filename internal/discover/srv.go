package discover

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/miekg/dns"

	"muster/internal/wire"
)

// maxRecords is applied after the random draw, so that each call can keep different records.
const maxRecords = 64

const maxAliases = 8

type srv struct {
	target   string // lower-case, no trailing dot
	port     uint16 // not 0
	priority uint16
	weight   uint16
}

type answer struct {
	name   string // without trailing dot
	server string // address and port
	exists bool   // false: NXDOMAIN
	found  []*dns.SRV
}

// newAnswer follows CNAME records within the message.
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

// usable sorts by priority. RFC 2782 forbids aliases as targets, but usable allows them, because they work when
// dialed.
func (a answer) usable() ([]srv, error) {
	var records []srv
	first := ""
	byPriority := func(x, y *dns.SRV) int { return cmp.Compare(x.Priority, y.Priority) }
	for _, r := range slices.SortedStableFunc(slices.Values(a.found), byPriority) {
		target, err := wire.ParseName(r.Target)
		if err == nil && r.Port == 0 {
			err = fmt.Errorf("%s has port 0", target)
		}
		if err != nil {
			first = cmp.Or(first, err.Error())
			continue
		}
		s := srv{target: string(target), port: r.Port, priority: r.Priority, weight: r.Weight}
		// A repeated target counts once, with its best priority.
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

// order implements RFC 2782, page 4: lower priorities first, then by a weighted draw without replacement.
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

// draw orders records of one priority in place. It shuffles first, so that records of weight 0 are spread too.
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
		// Select the first record whose running sum is at least number.
		number, running, i := random(sum+1), int64(0), 0
		for running = int64(rest[0].weight); running < number; running += int64(rest[i].weight) {
			i++
		}
		selected := rest[i]
		copy(rest[1:i+1], rest[:i]) // keeps the order of the rest
		rest[0] = selected
	}
	return records
}
