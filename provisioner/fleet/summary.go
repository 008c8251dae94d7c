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
	select {
	case <-x.current:
	default:
		return nil, ErrReading
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := &Summary{}
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
		if e.state != stateProvisioned {
			continue
		}
		if e.expires <= today {
			s.Expired++
			continue
		}
		s.Live++
		if e.expires <= day {
			s.Day++
		}
		if e.expires <= week {
			s.Week++
		}
	}
	s.Total, s.States = byState(counts)
	return s, nil
}

// byState returns counts by the number of the state as they are shown.
func byState(counts []int) (total int, named map[provisioner.State]int) {
	named = make(map[provisioner.State]int)
	for i, n := range counts {
		total += n
		if n > 0 {
			named[states[i]] = n
		}
	}
	return total, named
}
