package broker

import (
	"errors"
	"fmt"

	"muster/internal/wire"
)

// Causes for which a connection is refused. A *[Denied] wraps one of them, or
// what a function of [GateConfig] returned.
var (
	// ErrCredentials means that a connection presents nothing that could
	// admit it: no token, no certificate, a wrong password.
	ErrCredentials = errors.New("no usable credentials")

	// ErrName means that the CONNECT name is not one to which an inbox can be
	// bound; see [wire.ValidConnectionName].
	ErrName = errors.New("connection name is not 22 base64url characters")

	// ErrCertificate means that a certificate does not admit its holder: out
	// of its time, of another role, form or installation.
	ErrCertificate = errors.New("certificate is not admitted here")

	// ErrToken means that a token is too large or over.
	ErrToken = errors.New("token is not admitted here")

	// ErrNkey means that a connection claims an nkey where it can prove none, or
	// none where it has to.
	ErrNkey = errors.New("nkey not proven")
)

// Denied says why a connection is refused. The refused client is told nothing
// but "Authorization Violation": NATS has no room for more.
type Denied struct {
	// Code is stable and for programs: metrics, explanations.
	Code wire.Code

	// Err is for the operator. It holds no secret.
	Err error
}

func (d *Denied) Error() string { return fmt.Sprintf("connection denied: %s: %v", d.Code, d.Err) }

func (d *Denied) Unwrap() error { return d.Err }

// NotAdmitted is the cause where a node of the fleet is refused that has proven that
// the certificate is its own.
type NotAdmitted struct {
	Node   wire.Identity
	Serial string // of its certificate; see [ca.Serial]
	Err    error
}

func (n *NotAdmitted) Error() string {
	return fmt.Sprintf("node %q, certificate %s: %v", n.Node, n.Serial, n.Err)
}

func (n *NotAdmitted) Unwrap() error { return n.Err }

// deny returns err as a *Denied: as the one it wraps if there is one, so that
// functions of [GateConfig] can choose the code, else under code.
func deny(code wire.Code, err error) *Denied {
	var d *Denied
	if errors.As(err, &d) {
		return d
	}
	return &Denied{Code: code, Err: err}
}
