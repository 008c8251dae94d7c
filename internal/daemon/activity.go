package daemon

import (
	"sync"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/metrics"
)

// activity counts recent answers for operators, and passes everything on to the metrics.
type activity struct {
	*metrics.Metrics

	now func() time.Time // monotonic

	mu    sync.Mutex
	slots [slots]answered // guarded by mu: the last hour
}

const (
	slotSeconds = 10
	slots       = 3600 / slotSeconds
)

type answered struct {
	span    int64 // number since 1970
	done    map[provisioner.RequestKind]int
	refused map[wire.Code]int
}

func newActivity(m *metrics.Metrics) *activity { return &activity{Metrics: m, now: time.Now} }

// Done implements [provisioner.Meter].
func (a *activity) Done(k provisioner.RequestKind, d time.Duration, refused wire.Code) {
	a.Metrics.Done(k, d, refused)
	if refused != "" {
		a.countRefusal(refused)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slot().done[k]++
}

// Rejected implements [provisioner.Meter].
func (a *activity) Rejected(c wire.Code) {
	a.Metrics.Rejected(c)
	a.countRefusal(c)
}

// ConnectionRefused counts a refused connection like a refused request.
func (a *activity) ConnectionRefused(c wire.Code) {
	a.Metrics.ConnectionRefused(c)
	a.countRefusal(c)
}

// countRefusal leaves out pending nodes, which ask every few seconds.
func (a *activity) countRefusal(c wire.Code) {
	if c.Waits() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slot().refused[c]++
}

// The caller of slot holds a.mu.
func (a *activity) slot() *answered {
	span := a.now().Unix() / slotSeconds
	s := &a.slots[span%slots]
	if s.span != span || s.refused == nil {
		*s = answered{span: span, done: make(map[provisioner.RequestKind]int), refused: make(map[wire.Code]int)}
	}
	return s
}

func (a *activity) recent() *fleet.Activity {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := &fleet.Activity{Refused: make(map[wire.Code]int)}
	now := a.now().Unix() / slotSeconds
	for _, s := range a.slots {
		ago := now - s.span
		if ago < 0 || ago >= slots {
			continue
		}
		for c, n := range s.refused {
			sum.Refused[c] += n
		}
		if ago < 60/slotSeconds {
			sum.Enrolled += s.done[provisioner.RequestEnroll]
			sum.Renewed += s.done[provisioner.RequestRenew]
		}
	}
	return sum
}
