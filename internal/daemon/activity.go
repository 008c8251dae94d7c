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

	mu      sync.Mutex
	seconds [60]answered          // guarded by mu: of the last minute, by second
	minutes [60]map[wire.Code]int // guarded by mu: refusals of the last hour
	minute  [60]int64             // guarded by mu: of which minute each is
}

// answered counts what was granted in one second.
type answered struct {
	second             int64
	enrolled, renewals int
}

func newActivity(m *metrics.Metrics) *activity { return &activity{Metrics: m, now: time.Now} }

// Done implements [provisioner.Meter].
func (a *activity) Done(k provisioner.RequestKind, d time.Duration, refused wire.Code) {
	a.Metrics.Done(k, d, refused)
	if refused != "" {
		a.refuse(refused)
		return
	}
	second := a.now().Unix()
	a.mu.Lock()
	defer a.mu.Unlock()
	s := &a.seconds[second%60]
	if s.second != second {
		*s = answered{second: second}
	}
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

// refuse counts a refusal. One who waits asks every few seconds, and is counted
// among those who wait.
func (a *activity) refuse(c wire.Code) {
	if c.Waits() {
		return
	}
	minute := a.now().Unix() / 60
	a.mu.Lock()
	defer a.mu.Unlock()
	i := minute % 60
	if a.minute[i] != minute || a.minutes[i] == nil {
		a.minute[i], a.minutes[i] = minute, make(map[wire.Code]int)
	}
	a.minutes[i][c]++ // codes are those of the table: bounded
}

// lately returns the sums.
func (a *activity) lately() *fleet.Activity {
	now := a.now().Unix()
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := &fleet.Activity{Refused: make(map[wire.Code]int)}
	for _, s := range a.seconds {
		if ago := now - s.second; ago >= 0 && ago < 60 { // not of a clock that was ahead
			sum.Enrolled += s.enrolled
			sum.Renewed += s.renewals
		}
	}
	for i, codes := range a.minutes {
		if ago := now/60 - a.minute[i]; ago < 0 || ago >= 60 {
			continue
		}
		for c, n := range codes {
			sum.Refused[c] += n
		}
	}
	return sum
}
