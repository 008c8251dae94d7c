package events

import (
	"context"
	"errors"
	"log/slog"
	"maps"
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
	maxSteps    = 60        // of a period
	maxCounted  = 1000      // steps
	maxSources  = 200       // addresses in a step; the rest is one
	followAgain = 2 * time.Second
	readingTime = time.Second
)

// A Period is a time until now that is counted in equal steps.
type Period struct {
	Name  string
	Since string // its length, as operators write it
	Every string // a step in words
	Step  time.Duration
	Steps int
}

// Periods are the periods of [Recent.Counts].
var Periods = []Period{
	{"hour", "1h", "minute", time.Minute, 60},
	{"day", "1d", "half hour", 30 * time.Minute, 48},
	{"week", "7d", "3 hours", 3 * time.Hour, 56},
}

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
	At       time.Time         // their beginning
	Admitted int               // enrolled or renewed
	Renewed  int               // of Admitted
	Refused  int               // requests, connections and logins
	Codes    map[wire.Code]int // of Refused; "": logins
	Sources  map[string]int    // of Refused, by address; "": those of too many addresses
}

func (c *Counts) add(o *Counts) {
	c.Admitted, c.Renewed, c.Refused = c.Admitted+o.Admitted, c.Renewed+o.Renewed, c.Refused+o.Refused
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

// A step is a step of a period. It begins at a Unix time.
type step struct {
	length time.Duration
	at     int64
}

type tally map[step]*Counts

func (t tally) add(s step, o *Counts) {
	if t[s] == nil {
		t[s] = &Counts{}
	}
	t[s].add(o)
}

func (t tally) count(l *Logged, now time.Time) {
	one := &Counts{}
	if n := l.refusals(); n > 0 {
		one.Refused, one.Codes = n, map[wire.Code]int{l.Data.Code: n}
		one.Sources = map[string]int{limit.SourceName(limit.Source(l.Data.Source), l.Data.Source): n}
	} else if (l.Type == Enrolled || l.Type == Renewed) && !l.Data.Repeated {
		if one.Admitted = 1; l.Type == Renewed {
			one.Renewed = 1
		}
	} else {
		return
	}
	at := l.Time
	if at.After(now) { // another provisioner's clock may be ahead
		at = now
	}
	for _, p := range Periods {
		t.add(step{p.Step, at.Truncate(p.Step).Unix()}, one)
	}
	if len(t) > maxCounted {
		maps.DeleteFunc(t, func(s step, _ *Counts) bool { return now.Sub(time.Unix(s.at, 0)) > maxSteps*s.length })
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
	current, whole     chan struct{} // closed once the last hour, or all before it, is read

	mu     sync.Mutex
	counts tally     // guarded by mu
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
		whole:    make(chan struct{}),
		counts:   make(tally),
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
	current := sync.OnceFunc(func() { close(r.current) })
	for q := (Query{Since: from, Once: true}); ; {
		err := r.log.Events(ctx, q, r.take)
		if ctx.Err() != nil {
			return nil
		}
		if place := r.note(ctx, err); place != nil {
			q.After, q.Since = place, time.Time{}
		}
		q.Once = !q.Once || err != nil // after a failure the rest is read first: this says whether the log is back
		if !q.Once {
			current()
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
		older := make(tally)
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
			for s, c := range older {
				r.counts.add(s, c)
			}
			close(r.whole)
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

// Counts returns the steps of one of [Periods], oldest first, and their sum, which alone has codes and sources. At the
// first use it waits a moment for the log. With [ErrUnread], or the error of the log, they are incomplete.
func (r *Recent) Counts(ctx context.Context, p Period) (steps []Counts, sum Counts, err error) {
	ctx, cancel := context.WithTimeout(ctx, readingTime)
	defer cancel()
	r.wantHour()
	read := []chan struct{}{r.current}
	if p != Periods[0] {
		r.wantWeek()
		read = append(read, r.whole)
	}
	for _, done := range read {
		select {
		case <-done:
		case <-ctx.Done():
			err = ErrUnread
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	end := r.now().Truncate(p.Step)
	for at := end.Add(-time.Duration(p.Steps-1) * p.Step); !at.After(end); at = at.Add(p.Step) {
		one := Counts{}
		if have := r.counts[step{p.Step, at.Unix()}]; have != nil {
			one = *have
		}
		sum.add(&one)
		steps = append(steps, Counts{At: at, Admitted: one.Admitted, Refused: one.Refused})
	}
	return steps, sum, errors.Join(err, r.broken)
}
