package console

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"muster/internal/limit"
	"muster/internal/span"
	"muster/provisioner/events"
)

// Limits of the recent events in memory; an event takes a kilobyte.
const (
	window      = time.Hour // of the charts
	minutes     = int(window / time.Minute)
	maxKept     = 2000            // newest events
	followAgain = 2 * time.Second // after an error of the log
)

// A loggedEvent is an event with its data decoded.
type loggedEvent struct {
	*events.Stored
	Data events.Event
}

// minute counts a minute.
type minute struct {
	at      int64 // Unix minute
	Let     int   // enrolled or renewed
	Refused int
}

// At is the beginning of the minute.
func (m minute) At() time.Time { return time.Unix(m.at*60, 0) }

// An activity counts the events of the last hour, once a page was shown. It is safe for concurrent use.
type activity struct {
	log    events.Log
	logger *slog.Logger
	now    func() time.Time

	wanted chan struct{} // closed by the first call of wake
	once   sync.Once     // closes wanted

	mu      sync.Mutex
	minutes [minutes]minute // guarded by mu: a ring by minute
	kept    []*loggedEvent  // guarded by mu: newest last
	place   *events.Cursor  // guarded by mu: of the last event
	broken  error           // guarded by mu: why the log cannot be read
}

func newActivity(log events.Log, logger *slog.Logger, now func() time.Time) *activity {
	return &activity{log: log, logger: logger, now: now, wanted: make(chan struct{})}
}

func (a *activity) wake() { a.once.Do(func() { close(a.wanted) }) }

func (a *activity) run(ctx context.Context) error {
	select {
	case <-a.wanted:
	case <-ctx.Done():
		return nil
	}
	for {
		a.mu.Lock()
		q := events.Query{After: a.place}
		a.mu.Unlock()
		if q.After == nil {
			q.Since = a.now().Add(-window)
		}
		err := a.log.Events(ctx, q, func(e *events.Stored) error { a.take(e); return nil })
		if ctx.Err() != nil {
			return nil
		}
		a.mu.Lock()
		if a.broken == nil && err != nil {
			a.logger.WarnContext(ctx, "console cannot follow events", "err", err)
		}
		a.broken = err
		a.mu.Unlock()
		if !span.Sleep(ctx, followAgain) {
			return nil
		}
	}
}

// decodeEvent decodes an event; unreadable data stays empty.
func decodeEvent(e *events.Stored) *loggedEvent {
	return &loggedEvent{Stored: e, Data: e.Read()}
}

func (a *activity) take(e *events.Stored) {
	t := decodeEvent(e)
	a.mu.Lock()
	defer a.mu.Unlock()
	place := e.Cursor
	a.place, a.broken = &place, nil
	a.count(t)
	if e.Type != events.ServerAlive { // frequent, from every node
		if len(a.kept) >= 2*maxKept {
			a.kept = slices.Delete(a.kept, 0, len(a.kept)-maxKept)
		}
		a.kept = append(a.kept, t)
	}
}

// count requires mu.
func (a *activity) count(t *loggedEvent) {
	now := a.now().Unix() / 60
	at := min(t.Time.Unix()/60, now) // another provisioner's clock may be ahead
	if at <= now-int64(minutes) {
		return
	}
	m := &a.minutes[at%int64(minutes)]
	if m.at != at { // the slot is an hour old
		*m = minute{at: at}
	}
	switch t.Type {
	case events.Enrolled, events.Renewed:
		if !t.Data.Repeated {
			m.Let++
		}
	default:
		m.Refused += refusals(t)
	}
}

// refusals returns the number of refusals in an event, without waiting nodes.
func refusals(t *loggedEvent) int {
	switch t.Type {
	case events.Refused:
		if !t.Data.Code.Waits() {
			return 1
		}
	case events.Attempt, events.LoginRefused:
		return 1 + int(t.Data.LeftOut)
	}
	return 0
}

func (a *activity) newest(n int, wants func(*loggedEvent) bool) []*loggedEvent {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []*loggedEvent
	for i := len(a.kept) - 1; i >= 0 && len(found) < n; i-- {
		if wants(a.kept[i]) {
			found = append(found, a.kept[i])
		}
	}
	return found
}

// sources returns up to n addresses with the most refusals among the kept events.
func (a *activity) sources(n int) []row {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := make(map[string]int)
	for _, t := range a.kept {
		if refused := refusals(t); refused > 0 {
			counts[limit.SourceName(limit.Source(t.Data.Source), t.Data.Source)] += refused
		}
	}
	all := mostFirst(counts)
	return all[:min(n, len(all))]
}

// hour returns the minutes of the last hour, oldest first, with the error of the log.
func (a *activity) hour() ([]minute, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now().Unix() / 60
	var all []minute
	for at := now - int64(minutes) + 1; at <= now; at++ {
		m := a.minutes[at%int64(minutes)]
		if m.at != at {
			m = minute{at: at}
		}
		all = append(all, m)
	}
	return all, a.broken
}
