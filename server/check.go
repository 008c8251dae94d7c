package server

import (
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"muster/internal/conffile"
	"muster/internal/serverconf"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
	"muster/server/link"
	"muster/server/trust"
)

// errReply means that a reply does not match the request. The agent writes nothing and asks again.
var errReply = errors.New("reply refused")

// For a configuration that arrived intact, but that the node cannot use.
const remedyPushed = "nodes cannot use the configuration from the policy, template or helper: correct it, " +
	"and the node asks again by itself; if it is correct there, something on the network alters replies"

type expectation struct {
	identity       wire.Identity
	key            crypto.Signer
	authority      trust.Authority
	now            trust.Clock
	identityInConf bool
	renewed        bool

	// Of the request.
	facts      json.RawMessage
	factsError string
}

type offer struct {
	files   []files.File
	creds   *trust.Credentials
	pending pending
}

// checkReply verifies e as far as a node can. The error wraps errReply.
func checkReply(e *wire.Enrolled, want expectation) (*offer, error) {
	creds, err := checkIssued(e, want)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errReply, err)
	}
	if err := e.Check(); err != nil {
		return nil, advice.Errorf(remedyPushed, "%w: %w", errReply, link.OneLine(err))
	}
	text, err := confText(e, want.identity, want.identityInConf)
	if err != nil {
		return nil, advice.Errorf(remedyPushed, "%w: configuration: %w", errReply, err)
	}
	o := &offer{creds: creds, pending: pending{
		Identity:   string(want.identity),
		Serial:     e.Serial,
		Digest:     e.Digest,
		ReceiptSum: e.ReceiptSum,
	}}
	applied, err := json.Marshal(o.pending)
	if err != nil {
		return nil, err
	}
	o.files = []files.File{
		{Name: certificateFile, Data: []byte(e.Certificate), Mode: 0o644},
		{Name: caFile, Data: []byte(trust.EncodeCertificates(creds.Roots)), Mode: 0o644},
		{Name: confName, Data: text, Mode: 0o600},
		{Name: appliedFile, Data: applied, Mode: 0o600},
	}
	if len(want.facts) > 0 {
		o.files = append(o.files, files.File{Name: factsName, Data: want.facts, Mode: 0o600})
	}
	if want.factsError != "" {
		o.files = append(o.files, files.File{Name: factsErrorName, Data: []byte(want.factsError), Mode: 0o600})
	}
	for _, p := range []struct {
		dir, ext string
		policies map[string]string
	}{
		{policyDir, ".policy", e.ActionPolicies},
		{regoDir, ".rego", e.OPAPolicies},
	} {
		for _, name := range slices.Sorted(maps.Keys(p.policies)) {
			o.files = append(o.files, files.File{
				Name: p.dir + "/" + name + p.ext,
				Data: []byte(p.policies[name]),
				Mode: 0o600,
			})
		}
	}
	return o, nil
}

func checkIssued(e *wire.Enrolled, want expectation) (*trust.Credentials, error) {
	roots, cross, err := trust.SplitAuthority(e.CA)
	if err != nil {
		return nil, err
	}
	creds, err := trust.Check(want.key, e.Certificate, roots, want.identity, want.now)
	if err != nil {
		return nil, err
	}
	if err := want.authority.Check(creds, cross, want.now); err != nil {
		return nil, err
	}
	if e.Serial != strings.ToLower(e.Serial) || strings.TrimLeft(e.Serial, "0") != creds.Serial {
		return nil, fmt.Errorf("serial %.80q, but the certificate has %q", e.Serial, creds.Serial)
	}
	creds.Serial = e.Serial
	if digest := wire.Digest(e.Certificate, e.Files); e.Digest != digest {
		return nil, fmt.Errorf("digest %.80q, but the received files have %q", e.Digest, digest)
	}
	return creds, nil
}

// checkSigned checks that an unsealed reply is signed by a provisioner of the authority. own is nil, or the credentials
// that the reply offers or confirms. The error wraps errReply.
func checkSigned(
	r *link.Reply, authority trust.Authority, id wire.Identity, own *trust.Credentials, now trust.Clock,
) error {
	if r.Sealed {
		return nil
	}
	if err := authority.CheckReply(r.Reply, id, r.Request, own, now); err != nil {
		return fmt.Errorf("%w: %w", errReply, err)
	}
	return nil
}

// confText returns the server.conf of e's configuration. It refuses a configuration that would make this node enroll
// forever. If named is set and the configuration has no identity, it adds the node's.
func confText(e *wire.Enrolled, id wire.Identity, named bool) ([]byte, error) {
	settings := e.Configuration
	if _, is := settings[serverconf.KeyIdentity[0]]; named && !is {
		settings = maps.Clone(settings)
		settings[serverconf.KeyIdentity[0]] = string(id)
	}
	b, err := conffile.FormatSettings(settings, "Written by muster-server for "+string(id)+", certificate "+e.Serial+
		".\nChanges are lost when this machine is provisioned again.")
	if err != nil {
		return nil, err
	}
	if err := serverconf.CheckPushed(id, settings); err != nil {
		return nil, link.OneLine(err)
	}
	return b, nil
}
