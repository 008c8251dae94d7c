package demo

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
)

// domain is that of a fleet that stays, as in the documents.
const domain = "example.net"

// What becomes of the machines of a part of the fleet.
const (
	partMembers  = "members"     // get in, and stay
	partWaiting  = "waiting"     // nobody has allowed their names
	partDenied   = "denied"      // by the policy
	partDeferred = "deferred"    // by the policy
	partLimited  = "limited"     // share a token that is for fewer of them
	partExpired  = "expired"     // have a token of last week
	partForeign  = "other site"  // have a token of a site that is not here
	partHalf     = "unconfirmed" // got a certificate, and were never heard of again
	partRevoked  = "revoked"     // members, thrown out
	partRetired  = "retired"     // members, switched off and taken off the books
	partCloned   = "cloned"      // a member whose disk was copied
	partRogue    = "rogue"       // machine that has stolen a token, and tries names
)

// A machine is one of the fleet's.
type machine struct {
	name  string
	part  string
	token string // name of its file
	facts map[string]any
}

// roles and places are what a fleet is made of: of each hundred machines, so many.
var (
	roles  = []share{{"web", 40}, {"app", 25}, {"cache", 15}, {"db", 12}, {"mail", 8}}
	places = []share{{"ams1", 50}, {"fra2", 30}, {"nyc3", 20}}
)

// share is of how many in a hundred something is so.
type share struct {
	name    string
	percent int
}

// site is where the demo's provisioner stands: tokens for it are good there, those
// for others are not.
const site = "ams1"

// pick returns which of the shares the i-th is. Their sum is 100. A step that has
// no divisor in common with 100 spreads them evenly.
func pick(of []share, i, step int) string {
	at := i * step % 100
	for _, s := range of {
		if at -= s.percent; at < 0 {
			return s.name
		}
	}
	return of[0].name
}

// of is a share of n in a thousand, least at the least.
func of(n, thousandths, least int) int { return max(least, n*thousandths/1000) }

// uses is for how many machines the limited token is, of a fleet of n.
func uses(n int) int { return of(n, 2, 1) }

// machines returns a fleet of n machines, MinStay at the least. The members come
// first; they are as many as are left over.
func machines(n int) []machine {
	var rest []machine
	numbers := make(map[string]int)
	add := func(to *[]machine, role, place, part, token string, facts map[string]any) {
		numbers[role+place]++
		m := machine{name: fmt.Sprintf("%s%d.%s.%s", role, numbers[role+place], place, domain), part: part, token: token, facts: inventory(role, place, numbers[role+place])}
		for k, v := range facts {
			m.facts[k] = v
		}
		*to = append(*to, m)
	}
	for i := range of(n, 15, 2) {
		add(&rest, "edge", pick(places, i, 37), partWaiting, tokenAny, nil)
	}
	for i := range of(n, 6, 1) {
		add(&rest, "lab", pick(places, i, 37), partDenied, tokenAny, map[string]any{"quarantine": true})
	}
	for i := range of(n, 3, 1) {
		add(&rest, "new", pick(places, i, 37), partDeferred, tokenAny, map[string]any{"burn_in": "running"})
	}
	for range uses(n) + 2 {
		add(&rest, "kiosk", site, partLimited, tokenLimited, nil)
	}
	for range of(n, 1, 1) {
		add(&rest, "old", site, partExpired, tokenExpired, nil)
		add(&rest, "branch", "fra2", partForeign, tokenForeign, nil)
		add(&rest, "half", site, partHalf, tokenAny, nil)
	}
	var members []machine
	for i := range n - len(rest) {
		role, place := pick(roles, i, 41), pick(places, i, 37)
		token := tokenAny
		if place == site {
			token = tokenSite
		}
		add(&members, role, place, partMembers, token, nil)
	}
	marked := len(members)
	mark := func(part string, n int) {
		for range n {
			marked--
			members[marked].part = part
		}
	}
	mark(partRevoked, of(n, 2, 1))
	mark(partRetired, of(n, 1, 1))
	mark(partCloned, 1)
	return slices.Concat(members, rest)
}

// inventory is what a machine says of itself.
func inventory(role, place string, i int) map[string]any {
	rack := fmt.Sprintf("%s-r%02d", place, 1+i/20)
	network := map[string]int{"ams1": 1, "fra2": 2, "nyc3": 3}[place]
	systems := []string{"Debian 13", "Debian 13", "Debian 12", "Rocky 9"}
	return map[string]any{
		"role": role, "datacenter": place, "rack": rack, "kernel": "linux", "os": map[string]any{"name": systems[i%len(systems)]},
		"cores": 4 << (i % 4), "memory_gib": 16 << (i % 4), "serialnumber": fmt.Sprintf("PX-%s-%05d", role, 10000*network+i),
		"networking": map[string]any{
			"ip": fmt.Sprintf("10.%d.%d.%d", network, i/250, 1+i%250), "mac": fmt.Sprintf("52:54:00:%02x:%02x:%02x", network, i>>8&255, i&255),
		},
	}
}

// factsJSON is what is in a machine's file of facts.
func (m *machine) factsJSON() ([]byte, error) {
	b, err := json.Marshal(m.facts)
	return append(b, '\n'), err
}

// dir is where the machine's files are.
func (s *stay) dir(m *machine) string { return filepath.Join(s.cfg.Dir, "nodes", m.name) }
