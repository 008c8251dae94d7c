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

// Codes of alarms that do not refuse requests.
const (
	// AlarmClockDiffers: the clocks of provisioner and store are more than five minutes apart.
	AlarmClockDiffers wire.Code = "clock_differs"

	// AlarmAllowsAll: an allow-list entry admits every name.
	AlarmAllowsAll wire.Code = "allows_all"
)

// AlarmPolicyRefused means that the policy's files are invalid, or their tests fail. The previous policy stays in use.
const AlarmPolicyRefused wire.Code = "policy_refused"

// An Alarm is a state that an operator must act on.
type Alarm struct {
	Code  wire.Code `json:"code"`
	Cause string    `json:"cause"` // the newest
	Since time.Time `json:"since"`
}

// AlarmConfig configures [NewAlarms].
type AlarmConfig struct {
	// Name is the provisioner's; it is the node of alarm events.
	Name string

	// Emit must not block.
	Emit func(Event)

	Log *slog.Logger

	// Now defaults to [time.Now].
	Now func() time.Time
}

// Alarms holds the alarms of one process. It is safe for concurrent use. If several goroutines set a code, they use
// [Alarms.Keep].
type Alarms struct {
	cfg AlarmConfig // read-only

	keepSem chan struct{} // held by [Alarms.Keep], so that an older state does not replace a newer one

	mu     sync.RWMutex
	active map[wire.Code]*activeAlarm // guarded by mu
}

type activeAlarm struct {
	Alarm
	began time.Time // monotonic, since a wrong clock may be the cause
	err   error
}

// NewAlarms returns Alarms with none active.
func NewAlarms(cfg AlarmConfig) *Alarms {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Emit == nil {
		cfg.Emit = func(Event) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Alarms{cfg: cfg, keepSem: make(chan struct{}, 1), active: make(map[wire.Code]*activeAlarm)}
}

// Keep calls [Alarms.Set] with the result of state, one call at a time. state must neither block nor call Keep.
func (a *Alarms) Keep(ctx context.Context, code wire.Code, state func() error) {
	a.keepSem <- struct{}{}
	defer func() { <-a.keepSem }()
	a.Set(ctx, code, state())
}

// Set raises an alarm, replaces the cause of an active one, or clears it if cause is nil. cause must hold no secret.
func (a *Alarms) Set(ctx context.Context, code wire.Code, cause error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.active[code]
	switch {
	case cause != nil && s != nil:
		s.Cause, s.err = cause.Error(), cause
		return
	case cause == nil && s == nil:
		return
	}
	now := a.cfg.Now().UTC().Truncate(time.Millisecond)
	e := Event{Type: AlarmRaised, Time: now, Node: a.cfg.Name, Code: code, Attempt: wire.NewID()}
	if cause != nil {
		e.Cause = cause.Error()
		raised := Alarm{Code: code, Cause: e.Cause, Since: now}
		a.active[code] = &activeAlarm{Alarm: raised, began: time.Now(), err: cause}
		a.cfg.Log.ErrorContext(ctx, "alarm raised", "code", code, "err", cause)
	} else {
		e.Type, e.Cause, e.Elapsed = AlarmCleared, s.Cause, time.Since(s.began)
		delete(a.active, code)
		a.cfg.Log.InfoContext(ctx, "alarm cleared", "code", code, "elapsed", e.Elapsed, "err", s.err)
	}
	a.cfg.Emit(e)
}

// Stands returns the cause of an active alarm, or nil.
func (a *Alarms) Stands(code wire.Code) error {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if s := a.active[code]; s != nil {
		return s.err
	}
	return nil
}

// Standing returns the active alarms, oldest first.
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
