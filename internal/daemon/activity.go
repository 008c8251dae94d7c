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
	slots [slots]answered // guarded by mu: the last minute
}

const (
	slotSeconds = 10
	slots       = 60 / slotSeconds
)

type answered struct {
	span int64 // number since 1970
	done map[provisioner.RequestKind]int
}

func newActivity(m *metrics.Metrics) *activity { return &activity{Metrics: m, now: time.Now} }

// Done implements [provisioner.Meter].
func (a *activity) Done(k provisioner.RequestKind, d time.Duration, refused wire.Code) {
	a.Metrics.Done(k, d, refused)
	if refused != "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slot().done[k]++
}

// The caller of slot holds a.mu.
func (a *activity) slot() *answered {
	span := a.now().Unix() / slotSeconds
	s := &a.slots[span%slots]
	if s.span != span || s.done == nil {
		*s = answered{span: span, done: make(map[provisioner.RequestKind]int)}
	}
	return s
}

func (a *activity) recent() *fleet.Activity {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := &fleet.Activity{}
	now := a.now().Unix() / slotSeconds
	for _, s := range a.slots {
		if ago := now - s.span; ago >= 0 && ago < slots {
			sum.Enrolled += s.done[provisioner.RequestEnroll]
			sum.Renewed += s.done[provisioner.RequestRenew]
		}
	}
	return sum
}
