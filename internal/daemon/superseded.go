package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/broker"
)

// Nodes whose connections are to be looked at are gathered for gatherTime, so
// that a wave of renewals is one look, and so that the reply to a confirmation
// has left over a connection before that is dropped; chosen.
const gatherTime = 100 * time.Millisecond

// superseded has the broker drop the connections of certificates that are not
// live any more. Make one with newSuperseded.
type superseded struct {
	recheck func(ctx context.Context, ids ...wire.Identity) (again []wire.Identity, err error)
	log     *slog.Logger

	// everybody looks at all connections there are: those of brokers that outlive this
	// process may be of certificates that were revoked or superseded when nobody
	// looked. Again are those who are to be looked at once more, by recheck; not whole
	// is a look at which a server is missing. nil for a broker that ends with us.
	everybody func(ctx context.Context) (again []wire.Identity, whole bool, err error)

	// later is when to look once more, because a connection may appear so long
	// after it was admitted. 0 for brokers that show it at once.
	later time.Duration

	mu      sync.Mutex
	waiting map[wire.Identity]bool      // guarded by mu
	recent  map[wire.Identity]time.Time // guarded by mu: when a node was added last; nil if later is 0
	full    int                         // guarded by mu: size of recent at which those of long ago are forgotten
	wake    chan struct{}               // holds one signal while somebody waits
	wakeAll chan struct{}               // holds one signal while everybody is to be looked at
}

func newSuperseded(recheck func(context.Context, ...wire.Identity) ([]wire.Identity, error), log *slog.Logger) *superseded {
	return &superseded{recheck: recheck, log: log, waiting: make(map[wire.Identity]bool), wake: make(chan struct{}, 1), wakeAll: make(chan struct{}, 1)}
}

// add has the connections of a node looked at soon. It does not block.
func (s *superseded) add(ids ...wire.Identity) {
	s.queue(ids)
	if s.later == 0 {
		return
	}
	time.AfterFunc(s.later, func() { s.queue(ids) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recent == nil {
		s.recent = make(map[wire.Identity]time.Time)
	}
	for _, id := range ids {
		s.recent[id] = time.Now()
	}
	if len(s.recent) > s.full {
		s.forget()
		s.full = max(minRecent, 2*len(s.recent))
	}
}

// remembered is for how long a broker may be away and then come back with
// connections that were to be dropped: chosen, the network is mended by then.
const remembered = 24 * time.Hour

// minRecent is a number of nodes that is not worth forgetting any of; chosen.
const minRecent = 1024

// forget drops from recent who was added longer ago than counts. The caller holds mu.
func (s *superseded) forget() {
	maps.DeleteFunc(s.recent, func(_ wire.Identity, at time.Time) bool { return time.Since(at) > remembered })
}

// again has all nodes looked at that were added lately: a broker is there that
// may not have been asked. What was revoked or superseded before this process began is
// among no such nodes, so who can looks at everybody. It does not block.
func (s *superseded) again() {
	s.mu.Lock()
	s.forget()
	ids := slices.Collect(maps.Keys(s.recent))
	s.mu.Unlock()
	if len(ids) > 0 {
		s.queue(ids)
	}
	s.lookAtEverybody()
}

// lookAtEverybody has everybody looked at once more. It does not block.
func (s *superseded) lookAtEverybody() {
	if s.everybody != nil {
		signal(s.wakeAll)
	}
}

// queue does the work of add, once.
func (s *superseded) queue(ids []wire.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.waiting[id] = true
	}
	signal(s.wake)
}

// signal wakes who receives from c, now or when it is done with what it does.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// run looks until ctx is done. A look at everybody takes minutes where the store is far
// and nodes are many, so nobody else waits for it.
func (s *superseded) run(ctx context.Context) error {
	var all sync.WaitGroup
	if s.everybody != nil {
		all.Go(func() { s.lookAtAll(ctx) })
	}
	defer all.Wait()
	return s.looks(ctx)
}

// looks looks at those who are waiting until ctx is done. Who has to be looked at once more is so ever
// later, up to [lookAgain]: a server that is gone for good is missed for half a minute, and a look at several nodes
// lists the fleet, 12 µs of CPU and 1.1 KB for each connection. Nobody else waits for that. What is then still waiting needs no look if the
// broker ends with this process, and its connections with it. Other brokers go on, so
// that is looked at before the end.
func (s *superseded) looks(ctx context.Context) error {
	var left []wire.Identity // to be looked at once more
	var due <-chan time.Time // when; nil if nobody is left
	var wait time.Duration   // until then
	var rest time.Time       // until when nobody is looked at
	for {
		select {
		case <-ctx.Done():
			s.queue(left)
			return s.last(ctx)
		case <-due:
			s.queue(left)
			left, due, rest = nil, nil, time.Time{}
			continue
		case <-s.wake:
		}
		select {
		case <-ctx.Done():
			s.queue(left)
			return s.last(ctx)
		case <-time.After(max(gatherTime, time.Until(rest))):
		}
		s.mu.Lock()
		ids := slices.Collect(maps.Keys(s.waiting))
		clear(s.waiting)
		s.mu.Unlock()
		if len(ids) == 0 {
			continue
		}
		began := time.Now()
		again, err := s.recheck(ctx, ids...)
		if ended := time.Now(); s.later > 0 { // of brokers that list
			rest = ended.Add(min(lookRest*ended.Sub(began), lookAgain))
		}
		if err == nil {
			if due == nil {
				wait = 0
			}
			continue
		}
		left = append(left, again...) // for the last look as well, if this one was cut off by the end
		if ctx.Err() != nil {
			continue
		}
		s.log.WarnContext(ctx, "connections of superseded certificates not all dropped, trying again", "err", err)
		if first := time.Now().Add(lookFirst); rest.Before(first) {
			rest = first
		}
		if due == nil {
			wait = min(max(2*wait, lookFirst), lookAgain)
			due = time.After(wait)
		}
	}
}

// lookAtAll looks at everybody whenever that is wanted, one look after the other, until ctx
// is done. It lists everybody once more only where a server was missing: who could not be
// looked at for another reason is queued. What the end cuts off is left to the next start.
func (s *superseded) lookAtAll(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wakeAll:
		case <-again:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(gatherTime): // servers appear together
		}
		ids, whole, err := s.everybody(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.WarnContext(ctx, "connections not all looked at, trying again", "err", err)
		}
		s.queue(ids)
		again = nil
		if !whole {
			again = time.After(lookAgain)
		}
	}
}

// lookFirst is when nodes are looked at once more for the first time, where a server was missing or a record
// could not be read, and lookAgain is when everybody is; chosen, each look lists the fleet.
const (
	lookFirst = time.Second
	lookAgain = 5 * time.Second
)

// lookRest is how many times as long as a look took nobody is looked at behind it, up to [lookAgain]: nodes that
// renew, or confirm once more, one after the other would otherwise have the fleet listed all the time, by servers
// and provisioner a core each. Chosen: it is a fifth of that.
const lookRest = 4

// lastLook bounds the look at the end; chosen, a broker that does not answer holds up no
// stop.
const lastLook = 3 * time.Second

// last looks at what is waiting when ctx is done, and at those whose second look is due after
// that: it looks too early for some connections perhaps, and for none that is there by now.
func (s *superseded) last(ctx context.Context) error {
	s.mu.Lock()
	for id, at := range s.recent {
		if time.Since(at) < s.later {
			s.waiting[id] = true
		}
	}
	ids := slices.Collect(maps.Keys(s.waiting))
	s.mu.Unlock()
	if s.later == 0 || len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLook)
	defer cancel()
	if _, err := s.recheck(ctx, ids...); err != nil {
		s.log.WarnContext(ctx, "connections of superseded certificates not all dropped", "err", err)
	}
	return nil
}

// liveNode lets the broker ask which certificates of a node it would admit.
func (d *Daemon) liveNode(ctx context.Context, id wire.Identity) ([]string, error) {
	p := d.provisioner.Load()
	if p == nil {
		return nil, &broker.Denied{Code: wire.CodeUnavailable, Err: errors.New("the store is not open yet")}
	}
	certificates, err := p.LiveCertificates(ctx, id)
	if err != nil {
		return nil, &broker.Denied{Code: provisioner.CodeOf(err), Err: err}
	}
	var fingerprints []string
	for _, der := range certificates {
		sum := sha256.Sum256(der)
		fingerprints = append(fingerprints, hex.EncodeToString(sum[:]))
	}
	return fingerprints, nil
}
