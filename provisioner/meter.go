package provisioner

import (
	"time"

	"muster/internal/wire"
)

// A Step is a step of a request. Each round takes its steps again.
type Step int

// The steps. A confirmation has StepWait, StepClassify and StepPublish only. Times include waiting for a core.
const (
	StepProve     Step = iota // token, certificate request, signatures
	StepWait                  // for other requests of the same identity
	StepClassify              // read and classify the record
	StepDecide                // policy
	StepConfigure             // policy, template or helper
	StepIssue                 // sign the certificate
	StepClaim                 // write a use of a limited token
	StepPublish               // write the record
)

// Steps are their names in metrics.
var Steps = [...]string{"prove", "wait", "classify", "decide", "configure", "issue", "claim", "publish"}

// A RequestKind is the purpose of a request.
type RequestKind int

// The kinds of requests.
const (
	RequestEnroll RequestKind = iota
	RequestRenew
	RequestConfirm
)

// RequestKinds are their names in metrics.
var RequestKinds = [...]string{"enroll", "renew", "confirm"}

// A Meter measures requests. Its concurrent methods must not block, and should take less than 100 ns.
type Meter interface {
	// Step reports the duration of a step, refused or not.
	Step(Step, time.Duration)

	// Done reports the duration of a request and the code of its refusal, or "".
	Done(RequestKind, time.Duration, wire.Code)

	// Rejected counts a message that could not be decoded.
	Rejected(wire.Code)
}

// A stopwatch goes by the monotonic clock, since Config.Now may be wrong.
type stopwatch struct {
	meter      Meter
	begun, lap time.Time
}

func (p *Provisioner) watch() stopwatch {
	now := time.Now()
	return stopwatch{meter: p.cfg.Meter, begun: now, lap: now}
}

// took ends a step and returns err.
func (w *stopwatch) took(s Step, err error) error {
	now := time.Now()
	w.meter.Step(s, now.Sub(w.lap))
	w.lap = now
	return err
}

func (w *stopwatch) done(k RequestKind, err error) {
	w.meter.Done(k, time.Since(w.begun), CodeOf(err))
}
