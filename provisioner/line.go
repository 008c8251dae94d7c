package provisioner

import (
	"slices"
	"time"
)

// Turns at a token's log.
//
// An entry is written under the revision that it was counted on, so of two processes
// that append all the time the quicker one always wins: while the other reads
// what came before, the next one is there. Of two provisioners at a busy cluster
// one got no claim through for 14 s, and all its workers waited
// for that (measured, make chaos with 20,000 nodes). So who loses asks for a turn, with an entry that
// is appended whatever comes before it. Nobody can write after that without having read it, and
// who has read it lets the other one write first.
const (
	// turnAfter is how many conflicts of one batch make a process ask; chosen. One is usual.
	turnAfter = 2
	// turnFor is how long others wait for who has asked, who may have died; chosen, as
	// askAgain of the store: it is to read a few entries and write one, at 10 to 150 ms each
	// (measured, as above).
	turnFor = 3 * time.Second
)

// turnKey is the key and the identity in the release of an entry that asks for a
// turn. No key's hash is like that, so it releases nothing. It is there for
// provisioners that know nothing of turns, which refuse an entry with nothing in it.
const turnKey = "turn"

// newTurn is the entry by which a process asks for a turn.
func newTurn(process string, at time.Time) *ClaimEntry {
	return &ClaimEntry{Schema: ClaimSchema, Turn: process, Releases: []TokenRelease{{Key: turnKey, Identity: turnKey, Attempt: process, At: at}}}
}

// A line is who has asked for a turn at a token's log and has not had it, as one process
// sees it. What is in it is a courtesy: that no use is counted twice rests on revisions
// alone. Its times are those of the process that looks, without regard to the date.
type line struct {
	waiting []string  // processes; the first one's turn it is
	since   time.Time // when it became the first one's turn
}

// apply takes an entry into account. Whoever wrote one that asks for nothing, the
// first of the line was served or did not come.
func (l *line) apply(e *ClaimEntry, now time.Time) {
	switch {
	case e.Turn == "":
		l.drop(now)
	case slices.Contains(l.waiting, e.Turn):
	default:
		if len(l.waiting) == 0 {
			l.since = now
		}
		l.waiting = append(l.waiting, e.Turn)
	}
}

func (l *line) drop(now time.Time) {
	if len(l.waiting) > 0 {
		l.waiting, l.since = l.waiting[1:], now
	}
}

// before returns how long, at most, others come before the process. Zero: it may
// write.
func (l *line) before(process string, now time.Time) time.Duration {
	for len(l.waiting) > 0 && l.waiting[0] != process {
		if left := turnFor - now.Sub(l.since); left > 0 {
			return left
		}
		l.drop(now)
	}
	return 0
}
