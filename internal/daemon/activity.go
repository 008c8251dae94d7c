package daemon

import (
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/metrics"
)

// activity is what was answered lately, for operators who look; metrics are for
// those who watch. It is the provisioner's meter, and hands on to the metrics.
type activity struct {
	*metrics.Metrics

	now func() time.Time // monotonic

	mu    sync.Mutex
	slots [slots]answered // guarded by mu: of the last hour
}

// What was answered is counted by spans of ten seconds.
const (
	slotSeconds = 10
	slots       = 3600 / slotSeconds
)

// answered counts what was answered in one span.
type answered struct {
	span               int64 // since 1970
	enrolled, renewals int
	refused            map[wire.Code]int // codes are those of the table: bounded
}

func newActivity(m *metrics.Metrics) *activity { return &activity{Metrics: m, now: time.Now} }

// Done implements [provisioner.Meter].
func (a *activity) Done(k provisioner.RequestKind, d time.Duration, refused wire.Code) {
	a.Metrics.Done(k, d, refused)
	if refused != "" {
		a.refuse(refused)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slot()
	switch k {
	case provisioner.RequestEnroll:
		s.enrolled++
	case provisioner.RequestRenew:
		s.renewals++
	}
}

// Rejected implements [provisioner.Meter].
func (a *activity) Rejected(c wire.Code) {
	a.Metrics.Rejected(c)
	a.refuse(c)
}

// ConnectionRefused counts a connection that was not admitted, as who was refused
// before they could ask.
func (a *activity) ConnectionRefused(c wire.Code) {
	a.Metrics.ConnectionRefused(c)
	a.refuse(c)
}

// refuse counts a refusal. A node that waits asks every few seconds, and is counted
// among those that wait.
func (a *activity) refuse(c wire.Code) {
	if c.Waits() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slot().refused[c]++
}

// slot returns the count of now; a.mu is held.
func (a *activity) slot() *answered {
	span := a.now().Unix() / slotSeconds
	s := &a.slots[span%slots]
	if s.span != span || s.refused == nil {
		*s = answered{span: span, refused: make(map[wire.Code]int)}
	}
	return s
}

// lately returns what was granted in the last minute, and refused in the last hour.
func (a *activity) lately() *fleet.Activity {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := &fleet.Activity{Refused: make(map[wire.Code]int)}
	now := a.now().Unix() / slotSeconds
	for _, s := range a.slots {
		ago := now - s.span
		if ago < 0 || ago >= slots { // not of a clock that was ahead
			continue
		}
		for c, n := range s.refused {
			sum.Refused[c] += n
		}
		if ago < 60/slotSeconds {
			sum.Enrolled += s.enrolled
			sum.Renewed += s.renewals
		}
	}
	return sum
}
