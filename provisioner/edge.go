package provisioner

import (
	"encoding/json"
	"errors"
	"fmt"

	"muster/internal/serverconf"
	"muster/internal/wire"
	"muster/provisioner/ca"
)

// A Protocol is the protocol over which a node enrolled. An identity is enrolled over one protocol until it is retired.
type Protocol string

// The protocols. The empty one is that of muster's own agents.
const (
	ProtocolMuster Protocol = ""
	ProtocolChoria Protocol = "choria"
)

// String returns the name in policies, lists and messages.
func (p Protocol) String() string {
	if p == ProtocolMuster {
		return "muster"
	}
	return string(p)
}

// An Edge is what the enrollment of an unmodified client of another system has besides its request.
type Edge struct {
	// Key is a key whose possession the edge has verified, for a client without a certificate request. Nil: the
	// request has one.
	Key *ca.CSR

	// SSLDir and Inventory are what the client said, for a configuration helper.
	SSLDir    string
	Inventory json.RawMessage

	// Complete adds what the client needs to the configuration, which may be empty, and refuses a set that the client
	// could not use. The error becomes [wire.CodeConfigurationFailed].
	Complete func(wire.Files) (wire.Files, error)
}

// complete returns the files as the node gets them.
func (e *Edge) complete(id wire.Identity, files wire.Files) (wire.Files, error) {
	if e != nil {
		var err error
		if files, err = e.Complete(files); err != nil {
			return wire.Files{}, err
		}
	}
	err := files.Check()
	if err == nil && e == nil {
		err = serverconf.CheckPushed(id, files.Configuration)
	}
	return files, err
}

var errOtherProtocol = errors.New("the identity is enrolled over another protocol")

// checkProtocol refuses a request for an identity that is enrolled over another protocol.
func (a *attempt) checkProtocol() error {
	r := a.record
	if r == nil || r.State == StateRetired || r.Protocol == a.source.Protocol {
		return nil
	}
	return refuse(string(a.identity), wire.CodeIdentityTaken, fmt.Errorf("%w: %s; `muster node retire` frees it",
		errOtherProtocol, r.Protocol))
}
