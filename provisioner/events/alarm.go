package events

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"muster/internal/wire"
)

// The codes of the alarms that refuse nothing.
const (
	// AlarmClockDiffers: the clock and that of the store are more than five minutes apart.
	AlarmClockDiffers wire.Code = "clock_differs"

	// AlarmAllowsAll: an entry of the allow-list lets every name in. That is for labs,
	// and stands for as long as the entry does, so that nobody forgets it.
	AlarmAllowsAll wire.Code = "allows_all"
)

// AlarmPolicyRefused is the code of the alarm that the policy's files are not in
// use: they cannot be read or compiled, or their tests fail. The policy before
// decides on.
const AlarmPolicyRefused wire.Code = "policy_refused"

// An Alarm is something that an operator must act on, from when it began until
// it is over. It is a state: however often its cause is met, it is raised once.
type Alarm struct {
	Code  wire.Code `json:"code"`
	Cause string    `json:"cause"` // the newest
	Since time.Time `json:"since"` // by the provisioner's clock
}

// AlarmConfig configures [NewAlarms].
type AlarmConfig struct {
	// Name is the provisioner's, the node of the events: alarms are a process's.
	Name string

	// Emit takes the events. It must not block. Optional.
	Emit func(Event)

	// Log gets one line when an alarm is raised and one when it is cleared.
	// Optional; discards by default.
	Log *slog.Logger

	// Now is the clock. Optional; defaults to [time.Now].
	Now func() time.Time
}

// Alarms are the alarms of one process. Each code has one owner, which raises and clears it; where several goroutines do
// so, they use [Alarms.Keep]. Safe for concurrent use.
type Alarms struct {
	cfg AlarmConfig // set by NewAlarms, then read-only

	// keeping holds one token, which the caller that looks at a state has until the alarm says so.
	keepSem chan struct{}

	mu       sync.RWMutex
	active   map[wire.Code]*activeAlarm // guarded by mu
	watchers map[*watcher]struct{}      // guarded by mu: contexts that end with an alarm
}

// waiter is a context of [Alarms.Until].
type watcher struct {
	code   wire.Code
	cancel context.CancelCauseFunc
}

// standing is an alarm that has been raised and not cleared.
type activeAlarm struct {
	Alarm
	began time.Time // by the monotonic clock, since the other may be the cause
	err   error
}

// NewAlarms returns alarms of which none is raised.
func NewAlarms(cfg AlarmConfig) *Alarms {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Emit == nil {
		cfg.Emit = func(Event) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	a := &Alarms{cfg: cfg, keepSem: make(chan struct{}, 1), active: make(map[wire.Code]*activeAlarm), watchers: make(map[*watcher]struct{})}
	a.keepSem <- struct{}{}
	return a
}

// Keep has the alarm say what state returns, as Set does. Nobody else who calls it comes
// in between: one that had looked before something was over would raise the alarm after
// whoever ended it had cleared it. state must not block, nor call Keep.
func (a *Alarms) Keep(ctx context.Context, code wire.Code, state func() error) {
	<-a.keepSem
	defer func() { a.keepSem <- struct{}{} }()
	a.Set(ctx, code, state())
}

// Set raises the alarm if err is not nil, and clears it if it is: what whoever
// watches a state calls with what it found.
func (a *Alarms) Set(ctx context.Context, code wire.Code, err error) {
	if err == nil {
		a.Clear(ctx, code)
		return
	}
	a.Raise(ctx, code, err)
}

// Raise raises an alarm: one line in the log and one event. Of one that stands
// it replaces the cause, and says nothing. cause must hold no secret.
func (a *Alarms) Raise(ctx context.Context, code wire.Code, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.active[code]; s != nil {
		s.Cause, s.err = cause.Error(), cause
		return
	}
	now := a.cfg.Now().UTC().Truncate(time.Millisecond)
	a.active[code] = &activeAlarm{Alarm: Alarm{Code: code, Cause: cause.Error(), Since: now}, began: time.Now(), err: cause}
	a.cfg.Log.ErrorContext(ctx, "alarm raised", "code", code, "err", cause)
	a.cfg.Emit(Event{Type: AlarmRaised, Time: now, Node: a.cfg.Name, Code: code, Cause: cause.Error(), Attempt: wire.NewID()})
	for w := range a.watchers {
		if w.code == code {
			w.cancel(cause)
		}
	}
}

// Clear says that the cause of an alarm is gone, and how long it stood. One
// that does not stand costs next to nothing.
func (a *Alarms) Clear(ctx context.Context, code wire.Code) {
	if a.Stands(code) == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.active[code]
	if s == nil {
		return
	}
	delete(a.active, code)
	elapsed := time.Since(s.began)
	a.cfg.Log.InfoContext(ctx, "alarm cleared", "code", code, "elapsed", elapsed, "err", s.err)
	a.cfg.Emit(Event{Type: AlarmCleared, Time: a.cfg.Now().UTC().Truncate(time.Millisecond), Node: a.cfg.Name, Code: code, Cause: s.Cause,
		Elapsed: elapsed, Attempt: wire.NewID()})
}

// Stands returns the newest cause of an alarm, or nil if it is not raised.
func (a *Alarms) Stands(code wire.Code) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if s := a.active[code]; s != nil {
		return s.err
	}
	return nil
}

// Until returns a context that ends when ctx does, or as soon as the alarm is
// raised; one that stands ends it at once. The caller calls the function when
// it is done.
func (a *Alarms) Until(ctx context.Context, code wire.Code) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watcher{code: code, cancel: cancel}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.active[code]; s != nil {
		cancel(s.err)
		return ctx, func() {}
	}
	a.watchers[w] = struct{}{}
	return ctx, func() {
		a.mu.Lock()
		delete(a.watchers, w)
		a.mu.Unlock()
		cancel(nil)
	}
}

// Standing returns the alarms that stand, the oldest first. The slice is the
// caller's.
func (a *Alarms) Standing() []Alarm {
	a.mu.RLock()
	defer a.mu.RUnlock()
	all := make([]Alarm, 0, len(a.active))
	for _, s := range a.active {
		all = append(all, s.Alarm)
	}
	slices.SortFunc(all, func(x, y Alarm) int {
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.Code, y.Code))
	})
	return all
}
