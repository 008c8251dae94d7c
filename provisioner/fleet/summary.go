package fleet

import (
	"time"

	"muster/provisioner"
)

// A Summary counts all nodes.
type Summary struct {
	Total   int                       `json:"total"`
	States  map[provisioner.State]int `json:"states"`
	Live    int                       `json:"live"`             // certificates of nodes in the fleet, that have not ended
	Day     int                       `json:"expire_in_a_day"`  // those of Live that end within it
	Week    int                       `json:"expire_in_a_week"` // those of Day among them
	Expired int                       `json:"expired"`          // off, or cannot renew
	Cloned  int                       `json:"cloned"`
}

// Summary counts, in one pass over the index. The error is [ErrReading] while the
// records are being read.
func (x *Index) Summary(now time.Time) (*Summary, error) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.listed() {
		return nil, ErrReading
	}
	s := &Summary{States: make(map[provisioner.State]int)}
	counts := make([]int, len(states))
	today, day, week := now.Unix(), now.Add(24*time.Hour).Unix(), now.Add(7*24*time.Hour).Unix()
	for e := range x.entries.all {
		if !e.is(flagKnown) {
			continue
		}
		counts[e.state]++
		if e.is(flagCloned) {
			s.Cloned++
		}
		switch {
		case e.state != stateProvisioned:
			continue
		case e.expires <= today:
			s.Expired++
			continue
		case e.expires <= day:
			s.Day++
			s.Week++
		case e.expires <= week:
			s.Week++
		}
		s.Live++
	}
	for i, n := range counts {
		s.Total += n
		if n > 0 {
			s.States[states[i]] = n
		}
	}
	return s, nil
}
