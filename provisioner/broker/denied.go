package broker

import (
	"errors"
	"fmt"

	"muster/internal/wire"
)

var (
	// ErrCredentials means that a client sent neither token nor certificate.
	ErrCredentials = errors.New("no usable credentials")

	// ErrName means a bad CONNECT name; see [wire.ValidConnectionName].
	ErrName = errors.New("connection name is not 22 base64url characters, as that of muster's agents is; for Choria " +
		"servers, set choria in provisioner.yaml")

	// ErrCertificate means a certificate that has expired, or is of another role or installation.
	ErrCertificate = errors.New("certificate is not admitted here")

	// ErrToken means a token that is too large or expired.
	ErrToken = errors.New("token is not admitted here")

	// ErrNkey means an nkey that is missing or cannot be proven.
	ErrNkey = errors.New("nkey not proven")
)

// Denied says why a connection is refused. The client does not get the reason.
type Denied struct {
	Code wire.Code

	// Err is shown to operators and contains no secrets.
	Err error
}

func (d *Denied) Error() string { return fmt.Sprintf("connection denied: %s: %v", d.Code, d.Err) }

func (d *Denied) Unwrap() error { return d.Err }

// NotAdmitted means that a node is refused although it holds its certificate's key.
type NotAdmitted struct {
	Node   wire.Identity
	Serial string // of its certificate; see [ca.Serial]
	Err    error
}

func (n *NotAdmitted) Error() string {
	return fmt.Sprintf("node %q, certificate %s: %v", n.Node, n.Serial, n.Err)
}

func (n *NotAdmitted) Unwrap() error { return n.Err }

// deny returns the *Denied that err wraps, or a new one.
func deny(code wire.Code, err error) *Denied {
	if d, ok := errors.AsType[*Denied](err); ok {
		return d
	}
	return &Denied{Code: code, Err: err}
}
