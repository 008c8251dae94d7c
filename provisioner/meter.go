package provisioner

import (
	"time"

	"muster/internal/wire"
)

// A Step is one of the steps that a request goes through, in their order. One
// that is gone through again, since somebody else wrote the record first, is
// taken again.
type Step int

// The steps of an enrollment or a renewal. A confirmation has StepWait,
// StepClassify and StepPublish only. Those that compute include the wait for a core.
const (
	StepProve     Step = iota // token, certificate request, signatures
	StepWait                  // for other requests of the same identity
	StepClassify              // the record is read and classified
	StepDecide                // policy
	StepConfigure             // policy, template or helper
	StepIssue                 // the certificate is signed
	StepClaim                 // a use of a limited token is on disk
	StepPublish               // the record is on disk
)

// Steps are the names that metrics use for them.
var Steps = [...]string{"prove", "wait", "classify", "decide", "configure", "issue", "claim", "publish"}

// A RequestKind is what a request is for.
type RequestKind int

// The kinds of requests.
const (
	RequestEnroll RequestKind = iota
	RequestRenew
	RequestConfirm
)

// RequestKinds are the names that metrics use for them.
var RequestKinds = [...]string{"enroll", "renew", "confirm"}

// A Meter takes measurements of requests. Its methods are called on the way of
// each request, from many goroutines: they must not block, and should cost less
// than 100 ns.
type Meter interface {
	// Step says how long a step took, whether or not it ended in a refusal.
	Step(Step, time.Duration)

	// Done says how long a request took in all, and the code of its refusal, or
	// "" if it was granted.
	Done(RequestKind, time.Duration, wire.Code)

	// Rejected is called for what was not even a request.
	Rejected(wire.Code)
}

// A stopwatch measures the steps of one request. It goes by the monotonic
// clock: the provisioner's own may be the trouble.
type stopwatch struct {
	meter      Meter
	begun, lap time.Time
}

// watch returns a stopwatch that has just been started.
func (p *Provisioner) watch() stopwatch {
	now := time.Now()
	return stopwatch{meter: p.cfg.Meter, begun: now, lap: now}
}

// took says that the step is over that began where the one before it ended, and
// returns its error. It is meant to stand around the call.
func (w *stopwatch) took(s Step, err error) error {
	now := time.Now()
	w.meter.Step(s, now.Sub(w.lap))
	w.lap = now
	return err
}

// done says that the request is over.
func (w *stopwatch) done(k RequestKind, err error) {
	w.meter.Done(k, time.Since(w.begun), CodeOf(err))
}
