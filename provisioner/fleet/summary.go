package fleet

import (
	"fmt"
	"time"

	"muster/internal/span"
	"muster/provisioner"
	"muster/provisioner/trust"
)

// A Summary counts all nodes.
type Summary struct {
	Total   int                       `json:"total"`
	States  map[provisioner.State]int `json:"states"`
	Live    int                       `json:"live"`             // valid certificates of nodes in the fleet
	Day     int                       `json:"expire_in_a_day"`  // of Live
	Week    int                       `json:"expire_in_a_week"` // of Live, including those of Day
	Expired int                       `json:"expired"`          // the node is off or cannot renew
	Cloned  int                       `json:"cloned"`

	Connected map[ConnectionState]int `json:"connected"` // nodes in the fleet with muster's agent
	Brokers   map[string]int          `json:"-"`         // connected nodes by broker
}

// Summary reads the whole index, and counts the nodes at sites; nil: all. The error is [ErrReading] until the index is
// complete.
func (x *Index) Summary(now time.Time, sites trust.Sites) (*Summary, error) {
	select {
	case <-x.current:
	default:
		return nil, x.notRead()
	}
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := &Summary{States: make(map[provisioner.State]int), Connected: make(map[ConnectionState]int),
		Brokers: make(map[string]int)}
	for i := range x.nodes {
		n := &x.nodes[i]
		had := x.of(n)
		if !n.recorded() || !sites.Has(had.Site) {
			continue
		}
		s.Total++
		s.States[had.State]++
		if had.Cloned {
			s.Cloned++
		}
		if l := x.liveness(n); l != nil {
			s.Connected[l.Connected]++
			if l.Connected == Yes {
				s.Brokers[l.Broker]++
			}
		}
		if had.State == provisioner.StateProvisioned {
			s.count(instant(n.expires).Sub(now))
		}
	}
	return s, nil
}

// Faulty returns an error that counts the nodes in the fleet that cannot renew, and names the one whose certificate
// ends first; nil if there are none.
func (x *Index) Faulty(now time.Time) error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	var first *node
	for id := range x.faulty {
		n := x.find(id)
		if first == nil || n.expires < first.expires || n.expires == first.expires && id < first.id {
			first = n
		}
	}
	if first == nil {
		return nil
	}
	end := instant(first.expires)
	left := "ends in " + span.Format(end.Sub(now))
	if !now.Before(end) {
		left = "ended " + span.Format(now.Sub(end)) + " ago"
	}
	return fmt.Errorf("nodes that cannot renew as they should: %d; first %s, whose certificate %s: %s",
		len(x.faulty), first.id, left, x.of(first).Fault)
}

func (s *Summary) count(left time.Duration) {
	if left <= 0 {
		s.Expired++
		return
	}
	s.Live++
	if left <= 24*time.Hour {
		s.Day++
	}
	if left <= 7*24*time.Hour {
		s.Week++
	}
}
