package provisioner

import (
	"time"

	"muster/internal/wire"
)

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
	// Done gets the code of the refusal, or "".
	Done(RequestKind, time.Duration, wire.Code)

	// Rejected counts a message that could not be decoded.
	Rejected(wire.Code)
}

func (p *Provisioner) done(k RequestKind, begun time.Time, err error) {
	p.cfg.Meter.Done(k, time.Since(begun), CodeOf(err))
}
