package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"

	"muster/internal/wire"
)

const (
	// placesTag is how servers say how many places for machines without a certificate all of
	// them have together: a tag of each, with the number behind it. They tell nobody the limits
	// of an account. One from before that was printed says nothing, and nobody is turned away there.
	placesTag = "muster_places:"

	// lookAfter is how old what is known of connections may be when one is admitted, and lookPause is
	// between two looks. Chosen: a connection takes 12 µs of a look, here and at the server, so
	// that with 12,000 of them, where there is no place any more, a look is a seventh of a second.
	lookAfter = 5 * time.Second
	lookPause = time.Second

	// maxMissed is how many looks in a row no server may answer until nobody is turned away: who was
	// admitted since counts until he is known to have gone, and after as many as there are places that would be
	// everybody. Chosen: one is missed by servers that have more to do than they can.
	maxMissed = 2
)

// shares sees to it that no token, and of a token no address, has all the places of machines
// without a certificate at servers outside of the process while others want one. [places]
// does that where the server is ours, by giving one's place to another. Here connections
// come in at many servers, and admissions go out from many provisioners; so the last quarter
// of the places is kept for who has few. Whoever has a sixteenth of all by one token is turned
// away from it, unless its address has fewer than that; and from the last
// eighth whatever its address. So a token whose holder takes every place there is leaves an eighth to
// those with another one, and from one address as much again to others with
// the same one. Machines need a place for seconds.
//
// What is known is what the servers have said, and who was admitted here since. Other
// provisioners admit as well, so that in between there may be more: [shares.excess] says who
// has to go then. It is safe for concurrent use. Make one with [newShares].
type shares struct {
	due chan struct{} // has a message when it is time to look

	mu     sync.Mutex
	places int       // guarded by mu: as the server said that asked last; 0 is unknown
	looked time.Time // guarded by mu: when the last look began, monotonic
	missed int       // guarded by mu: looks in a row that no server has answered
	known  tally     // guarded by mu: what the servers have said, when they were last looked at
	since  tally     // guarded by mu: those admitted here since that look began
	later  tally     // guarded by mu: those admitted here since the present one began
}

// A tally is how many connections there are.
type tally struct {
	all     int
	token   map[string]int // by the id of the token; "" for those of which whoever admitted them has not said it
	address map[string]int // by source
}

func newTally() tally { return tally{token: make(map[string]int), address: make(map[string]int)} }

func (t *tally) add(token, source string) {
	t.all++
	t.token[token]++
	t.address[source]++
}

func newShares() *shares {
	return &shares{due: make(chan struct{}, 1), known: newTally(), since: newTally(), later: newTally()}
}

// take reports whether there is a place for a connection with a token, from a host, at a server
// with these tags, and counts it then. The server may have none all the same.
func (s *shares) take(tags jwt.TagList, token, host string) bool {
	places := placesOf(tags)
	if places == 0 {
		return true
	}
	source := sourceOf(host)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = places
	if s.since.all > places/16 || s.looked.IsZero() || time.Since(s.looked) > lookAfter {
		select {
		case s.due <- struct{}{}:
		default: // it is known
		}
	}
	if s.missed >= maxMissed {
		return true
	}
	few := max(1, places/16)
	ofToken := s.known.token[token] + s.known.token[""] + s.since.token[token]
	ofSource := s.known.address[source] + s.since.address[source]
	switch free := places - s.known.all - s.since.all; {
	case free > places/4, ofToken < few, ofSource < few && free > places/8:
	default:
		return false
	}
	s.since.add(token, source)
	s.later.add(token, source)
	return true
}

// begin is called when a look begins: who is admitted from then on may not be among those that the
// servers list. It is called once at a time.
func (s *shares) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked, s.later = time.Now(), newTally()
}

// miss is called in place of end when no server has answered a look. More are counted than there are
// then, until one does.
func (s *shares) miss() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missed++
}

// end is called when a look has ended, with all that were listed. It returns those that have to
// go.
func (s *shares) end(listed []place) (excess []place) {
	known := newTally()
	for _, p := range listed {
		known.add(p.token, p.source)
	}
	s.mu.Lock()
	s.known, s.since, s.later, s.missed = known, s.later, newTally(), 0 // one of its own, or each would count twice
	places := s.places
	s.mu.Unlock()
	return excessOf(places, known, listed)
}

// A place is one of a connection, on some server.
type place struct {
	connection

	token  string // its id, "" if whoever admitted it has not said it
	source string
}

// placeOf is what a server says of a connection of a machine without a certificate.
func placeOf(id string, c *server.ConnInfo) place {
	_, token := wire.SplitUser(c.AuthorizedUser)
	return place{connection: connectionOf(id, c), source: sourceOf(c.IP), token: token}
}

// excessOf returns which connections have to go, so that an eighth of the places is left, or a quarter where one
// address has more than half of all: those of a token that has more than half, of the addresses that
// have most, the newest first.
// The servers say the same to all provisioners. So these choose the same ones, and to
// end one twice is harmless.
func excessOf(places int, known tally, listed []place) (excess []place) {
	if places == 0 || known.all == 0 {
		return nil
	}
	most := ""
	for token, n := range known.token {
		if n > known.token[most] || n == known.token[most] && token < most {
			most = token
		}
	}
	bySource := make(map[string][]place)
	for _, p := range listed {
		if p.token == most {
			bySource[p.source] = append(bySource[p.source], p)
		}
	}
	biggest := 0
	for _, list := range bySource {
		biggest = max(biggest, len(list))
	}
	left := places / 8
	if biggest > places/2 {
		left = places / 4 // of which other addresses have the first half
	}
	over := min(known.all-(places-left), known.token[most]-places/2)
	if over <= 0 {
		return nil
	}
	// An address keeps what it has below a level that is the same for all.
	level := biggest - sort.Search(biggest, func(cut int) bool {
		above := 0
		for _, list := range bySource {
			above += max(0, len(list)-(biggest-cut))
		}
		return above >= over
	})
	for _, source := range slices.Sorted(maps.Keys(bySource)) {
		list := bySource[source]
		slices.SortFunc(list, func(a, b place) int { // the newest first
			return cmp.Or(b.start.Compare(a.start), cmp.Compare(a.server, b.server), cmp.Compare(a.number, b.number))
		})
		excess = append(excess, list[:max(0, len(list)-level)]...)
	}
	return excess[:over]
}

// keepShares looks at the connections of machines without a certificate whenever it is time to,
// until ctx is done.
func (e *External) keepShares(ctx context.Context) {
	pause := time.NewTicker(lookPause)
	defer pause.Stop()
	said := "" // once, until it is something else: a server that is silent is so for a while
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.callout.shares.due:
		}
		switch err := e.lookAtPlaces(ctx); {
		case err == nil:
			said = ""
		case ctx.Err() == nil && err.Error() != said:
			said = err.Error()
			e.log.WarnContext(ctx, "connections of machines without a certificate not looked at to the end", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// lookAtPlaces learns from the servers who has the places of machines without a certificate, and
// drops whom others have to have one of. What a server that does not answer has is not counted.
func (e *External) lookAtPlaces(ctx context.Context) error {
	shares := e.callout.shares
	nc, err := e.running()
	if err != nil {
		shares.miss()
		return err
	}
	shares.begin()
	var mu sync.Mutex
	var listed []place // guarded by mu
	answered := false  // guarded by mu
	options := server.ConnzOptions{Account: AccountProvisioning, Username: true, Limit: e.firstPage}
	err = e.list(ctx, nc, options, func(id string, conns []*server.ConnInfo) {
		mu.Lock()
		defer mu.Unlock()
		answered = true
		for _, c := range conns {
			listed = append(listed, placeOf(id, c))
		}
	})
	if !answered {
		shares.miss()
		return err
	}
	errs := []error{err}
	for _, p := range shares.end(listed) {
		errs = append(errs, p.kick(nc))
	}
	return errors.Join(errs...)
}

// placesOf returns how many places a server with these tags says that there are, 0 if it does not.
func placesOf(tags jwt.TagList) int {
	for _, tag := range tags {
		if text, ok := strings.CutPrefix(tag, placesTag); ok {
			n, err := strconv.Atoi(text)
			if err != nil || n < 0 {
				return 0
			}
			return n
		}
	}
	return 0
}

// taggedPlaces is the tag of servers that have so many places together.
func taggedPlaces(n int) string { return fmt.Sprintf("%s%d", placesTag, n) }
