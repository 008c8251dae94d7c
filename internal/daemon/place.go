package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
)

// Times of a place; chosen.
const (
	// placeEvery is how often it is looked whether anybody can be admitted: as often as
	// revocations are looked for.
	placeEvery = provisioner.LookEvery

	// othersEvery is how often others are asked whether they serve, while we cannot and are there
	// all the same, and how long they may take. An answer takes milliseconds. While we
	// stand aside they are asked at each look: nobody is there from when the one that served in
	// our place was killed until it has been missed.
	othersEvery = time.Second
)

// A place is the one that this provisioner has among those that share the requests of
// nodes and the questions of brokers. NATS gives each of those to any of them, also to one
// that can admit nobody. So such a one stands aside, as long as another one says that it
// serves. Where there is none it stays, since a node is to hear what is wrong: nobody
// leaves on what it knows of others by itself, or at the same time as the other one, for
// who says that it serves has a place and can admit, and asks anew before it leaves.
type place struct {
	// Set by newPlace, then read-only.
	excluded func() error               // why another one is to serve in our place, nil if none is
	another  func(context.Context) bool // asks whether another provisioner serves
	log      *slog.Logger

	asked time.Time // when others were; only touched by look

	mu      sync.Mutex
	aside   bool          // guarded by mu
	changed chan struct{} // guarded by mu: closed when aside changes
}

func newPlace(excluded func() error, another func(context.Context) bool, log *slog.Logger) *place {
	return &place{excluded: excluded, another: another, log: log, changed: make(chan struct{})}
}

// now returns whether we stand aside, and what is closed when that changes.
func (p *place) now() (aside bool, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.aside, p.changed
}

// run keeps the place until ctx is done. It returns nil.
func (p *place) run(ctx context.Context) error {
	tick := time.NewTicker(placeEvery)
	defer tick.Stop()
	for {
		p.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look leaves the place or takes it again. Every look begins anew, and so may be the last.
func (p *place) look(ctx context.Context) {
	why := p.excluded()
	if why == nil {
		p.asked = time.Time{} // should it come again, others are asked at once
		p.stand(ctx, false, nil)
		return
	}
	if aside, _ := p.now(); !aside && time.Since(p.asked) < othersEvery {
		return
	}
	p.asked = time.Now()
	asking, cancel := context.WithTimeout(ctx, othersEvery)
	defer cancel()
	p.stand(ctx, p.another(asking), why)
}

// stand stands aside or does not.
func (p *place) stand(ctx context.Context, aside bool, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if aside == p.aside || ctx.Err() != nil {
		return
	}
	p.aside = aside
	close(p.changed)
	p.changed = make(chan struct{})
	switch {
	case aside:
		p.log.WarnContext(ctx, "requests left to other provisioners, which serve", "err", why)
	case why != nil:
		p.log.WarnContext(ctx, "requests taken again although others should: no other provisioner serves", "err", why)
	default:
		p.log.InfoContext(ctx, "requests taken again")
	}
}

// admitsNobody returns why no node can be admitted by us, nil if one can.
func (d *Daemon) admitsNobody() error {
	p := d.provisioner.Load()
	if p == nil {
		return errNotOpen
	}
	return p.AdmitsNobody()
}

// unfit returns why another provisioner is to serve in our place, nil if none is: we can admit
// nobody, or cannot read what brokers ask, so that those are let in nowhere of whom we are asked;
// or our clock is ahead of others', and what it certifies is not valid yet by theirs.
func (d *Daemon) unfit() error {
	if err := d.admitsNobody(); err != nil {
		return err
	}
	if d.external != nil {
		if err := d.external.Unread(); err != nil {
			return err
		}
	}
	return d.clock.Load().Contradicted()
}

// anotherServes asks whether another provisioner serves. A broker inside of the process
// serves one alone.
func (d *Daemon) anotherServes(ctx context.Context) bool {
	conn := d.conn.Load()
	if d.external == nil || conn == nil {
		return false
	}
	// The error may be that nobody has answered in time.
	answers, _, err := askPeers(ctx, conn, question{From: d.id, Serves: true}, func(a []answer) bool { return a[len(a)-1].Serves })
	return err == nil && len(answers) > 0 && answers[len(answers)-1].Serves
}

// serves reports whether we take requests and can serve them.
func (d *Daemon) serves() bool {
	aside, _ := d.place.now()
	return d.serving.Load() && !aside && d.unasked.Load() == nil && d.unfit() == nil && d.alarms.Stands(wire.CodeStoreUnavailable) == nil
}
