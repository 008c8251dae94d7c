package events

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"muster/internal/limit"
	"muster/internal/span"
	"muster/internal/wire"
)

// Limits of the recent events in memory; an event takes a kilobyte.
const (
	recently    = time.Hour // that is read at the first use; older events are read if they are wanted
	maxKept     = 2000      // newest events
	maxSources  = 200       // addresses in a step; the rest is one
	followAgain = 2 * time.Second
)

// A Period is a time until now that is counted in equal steps.
type Period struct {
	Name  string
	Step  time.Duration
	Steps int
}

// Periods are the periods of [Recent.Counts].
var Periods = []Period{{"hour", time.Minute, 60}, {"day", 30 * time.Minute, 48}, {"week", 3 * time.Hour, 56}}

// A Logged is an event with its data decoded.
type Logged struct {
	*Stored
	Data Event
}

// Decode decodes an event; unreadable data stays empty.
func Decode(e *Stored) *Logged { return &Logged{Stored: e, Data: e.Read()} }

// refusals returns the number of refusals in an event, without waiting nodes.
func (l *Logged) refusals() int {
	switch l.Type {
	case Refused, Attempt, LoginRefused:
		if !l.Data.Code.Waits() {
			return 1 + int(l.Data.LeftOut)
		}
	}
	return 0
}

// Counts are numbers of nodes and requests in a time. Refused does not contain waiting nodes.
type Counts struct {
	At       time.Time         // its beginning
	Admitted int               // enrolled or renewed
	Refused  int               // requests, connections and logins
	Codes    map[wire.Code]int // of Refused; "": logins
	Sources  map[string]int    // of Refused, by address; "": those of too many addresses
}

func (c *Counts) add(o *Counts) {
	c.Admitted, c.Refused = c.Admitted+o.Admitted, c.Refused+o.Refused
	if c.Codes == nil && o.Refused > 0 {
		c.Codes, c.Sources = make(map[wire.Code]int), make(map[string]int)
	}
	for code, n := range o.Codes {
		c.Codes[code] += n
	}
	for source, n := range o.Sources {
		if _, known := c.Sources[source]; !known && len(c.Sources) >= maxSources {
			source = ""
		}
		c.Sources[source] += n
	}
}

// A tally has a ring of steps for each of [Periods].
type tally [3][]Counts

// step returns the slot of a time in the ring of a period, which may be that of another time.
func (t *tally) step(period int, at time.Time) *Counts {
	p := Periods[period]
	if t[period] == nil {
		t[period] = make([]Counts, p.Steps)
	}
	return &t[period][at.Unix()/int64(p.Step/time.Second)%int64(p.Steps)]
}

func (t *tally) add(period int, o *Counts, now time.Time) {
	at := o.At.Truncate(Periods[period].Step)
	if at.After(now) { // another provisioner's clock may be ahead
		at = now.Truncate(Periods[period].Step)
	}
	step := t.step(period, at)
	if step.At.Before(at) { // the ring has come around
		*step = Counts{At: at}
	}
	if step.At.Equal(at) {
		step.add(o)
	}
}

func (t *tally) count(l *Logged, now time.Time) {
	one := &Counts{At: l.Time}
	switch l.Type {
	case Enrolled, Renewed:
		if !l.Data.Repeated {
			one.Admitted = 1
		}
	default:
		if n := l.refusals(); n > 0 {
			one.Refused, one.Codes = n, map[wire.Code]int{l.Data.Code: n}
			one.Sources = map[string]int{limit.SourceName(limit.Source(l.Data.Source), l.Data.Source): n}
		}
	}
	if one.Admitted+one.Refused > 0 {
		for i := range t {
			t.add(i, one, now)
		}
	}
}

// Recent counts the events of the last week, and keeps the newest ones. It reads the log from its first use on, so that
// the counts are those on record, of all provisioners. It is safe for concurrent use.
type Recent struct {
	log    Log
	logger *slog.Logger
	now    func() time.Time

	hour, week         chan struct{} // closed once they are wanted
	wantHour, wantWeek func()        // close them
	current            chan struct{} // closed once the last hour is read

	mu     sync.Mutex
	counts tally     // guarded by mu
	whole  bool      // guarded by mu: the week is counted
	kept   []*Logged // guarded by mu: newest last
	place  *Cursor   // guarded by mu: of the last event
	broken error     // guarded by mu: why the log cannot be read
}

// NewRecent returns a Recent of the log. Call Run once.
func NewRecent(log Log, logger *slog.Logger, now func() time.Time) *Recent {
	hour, week := make(chan struct{}), make(chan struct{})
	return &Recent{
		log:      log,
		logger:   logger,
		now:      now,
		hour:     hour,
		week:     week,
		wantHour: sync.OnceFunc(func() { close(hour) }),
		wantWeek: sync.OnceFunc(func() { close(week) }),
		current:  make(chan struct{}),
	}
}

// Run follows the log from the first use on until ctx is done, and returns nil then.
func (r *Recent) Run(ctx context.Context) error {
	select {
	case <-r.hour:
	case <-ctx.Done():
		return nil
	}
	from := r.now().Add(-recently)
	var older sync.WaitGroup
	older.Go(func() { r.readOlder(ctx, from) })
	defer older.Wait()
	for q := (Query{Since: from, Once: true}); ; {
		err := r.log.Events(ctx, q, r.take)
		if ctx.Err() != nil {
			return nil
		}
		if place := r.note(ctx, err); place != nil {
			q.After, q.Since = place, time.Time{}
		}
		if err == nil && q.Once {
			q.Once = false
			close(r.current)
		} else if !span.Sleep(ctx, followAgain) {
			return nil
		}
	}
}

// note takes the error of the log, or nil, and returns the place to go on.
func (r *Recent) note(ctx context.Context, err error) *Cursor {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken == nil && err != nil {
		r.logger.WarnContext(ctx, "events cannot be read", "err", err)
	}
	r.broken = err
	return r.place
}

var errRead = errors.New("the rest is read")

// readOlder counts the events of the week before from.
func (r *Recent) readOlder(ctx context.Context, from time.Time) {
	select {
	case <-r.week:
	case <-ctx.Done():
		return
	}
	for {
		var older tally
		err := r.log.Events(ctx, Query{Since: from.Add(-7 * span.Day), Once: true}, func(e *Stored) error {
			if !e.RecordedTime.Before(from) {
				return errRead
			}
			older.count(Decode(e), r.now())
			return nil
		})
		if err == nil || errors.Is(err, errRead) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for i := range older {
				for j := range older[i] {
					r.counts.add(i, &older[i][j], r.now())
				}
			}
			r.whole = true
			return
		}
		if !span.Sleep(ctx, followAgain) {
			return
		}
	}
}

func (r *Recent) take(e *Stored) error {
	l := Decode(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	place := e.Cursor
	r.place, r.broken = &place, nil
	r.counts.count(l, r.now())
	if e.Type != ServerAlive { // frequent, from every node
		if len(r.kept) >= 2*maxKept {
			r.kept = slices.Delete(r.kept, 0, len(r.kept)-maxKept)
		}
		r.kept = append(r.kept, l)
	}
	return nil
}

// Newest returns up to n of the kept events that are wanted, newest first.
func (r *Recent) Newest(n int, wants func(*Logged) bool) []*Logged {
	r.wantHour()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*Logged
	for _, l := range slices.Backward(r.kept) {
		if len(found) == n {
			break
		}
		if wants(l) {
			found = append(found, l)
		}
	}
	return found
}

// ErrUnread means that the log of events has not been read yet: retry in a few seconds.
var ErrUnread = errors.New("the events are still being read")

// Broken returns why the log cannot be read now, or nil.
func (r *Recent) Broken() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken
}

// Counts returns the steps of one of [Periods], oldest first, and their sum, which alone has codes and sources. With
// [ErrUnread], or the error of the log, they are incomplete.
func (r *Recent) Counts(p Period) (steps []Counts, sum Counts, err error) {
	r.wantHour()
	i := slices.Index(Periods, p)
	if i > 0 {
		r.wantWeek()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.current:
		err = r.broken
	default:
		err = errors.Join(ErrUnread, r.broken)
	}
	if i > 0 && !r.whole {
		err = errors.Join(ErrUnread, r.broken)
	}
	end := r.now().Truncate(p.Step)
	for at := end.Add(-time.Duration(p.Steps-1) * p.Step); !at.After(end); at = at.Add(p.Step) {
		one := Counts{At: at}
		if have := r.counts.step(i, at); have != nil && have.At.Equal(at) {
			one = *have
		}
		sum.add(&one)
		one.Codes, one.Sources = nil, nil
		steps = append(steps, one)
	}
	return steps, sum, err
}

// Refused returns the refusals of the last hour by code, without logins, once they are read. The error is [ErrUnread]
// if ctx ends first, or that of the log.
func (r *Recent) Refused(ctx context.Context) (map[wire.Code]int, error) {
	r.wantHour()
	select {
	case <-r.current:
	case <-ctx.Done():
	}
	_, sum, err := r.Counts(Periods[0])
	delete(sum.Codes, "")
	return sum.Codes, err
}
