package provisioner

import (
	"time"

	"muster/internal/wire"
)

// A Step is a measured part of a request. Each round repeats its steps.
type Step int

// The steps. A confirmation has StepWait, StepClassify and StepPublish only.
const (
	StepProve Step = iota
	StepWait       // for other requests of the same identity
	StepClassify
	StepDecide
	StepConfigure
	StepIssue
	StepClaim // use of a limited token
	StepPublish
)

// Steps has the names of the steps in metrics.
var Steps = [...]string{"prove", "wait", "classify", "decide", "configure", "issue", "claim", "publish"}

// A RequestKind is the purpose of a request.
type RequestKind int

// The kinds of requests.
const (
	RequestEnroll RequestKind = iota
	RequestRenew
	RequestConfirm
)

// RequestKinds has the names of the kinds in metrics.
var RequestKinds = [...]string{"enroll", "renew", "confirm"}

// A Meter measures requests. Its methods are called concurrently, must not block and should take less than 100 ns.
type Meter interface {
	Step(Step, time.Duration)

	// Done gets the code of the refusal, or "".
	Done(RequestKind, time.Duration, wire.Code)

	// Rejected counts a message that could not be decoded.
	Rejected(wire.Code)
}

// A stopwatch uses the monotonic clock, since Config.Now may be wrong.
type stopwatch struct {
	meter      Meter
	begun, lap time.Time
}

func (p *Provisioner) watch() stopwatch {
	now := time.Now()
	return stopwatch{meter: p.cfg.Meter, begun: now, lap: now}
}

func (w *stopwatch) took(s Step, err error) error {
	now := time.Now()
	w.meter.Step(s, now.Sub(w.lap))
	w.lap = now
	return err
}

func (w *stopwatch) done(k RequestKind, err error) {
	w.meter.Done(k, time.Since(w.begun), CodeOf(err))
}
