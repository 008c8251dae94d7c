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
	"muster/internal/discover"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
	"muster/server/link"
	"muster/server/trust"
)

// errReply means that a reply to this node's own request is not what it asked
// for. Nothing is written; the node asks again.
var errReply = errors.New("reply refused")

// remedyPushed is about a configuration that came as it was meant and that the
// node cannot use.
const remedyPushed = "the policy, template or helper gives out what no node can use: correct it, and the node asks again by itself; " +
	"if it does not give that out, replies are altered on the way"

// An expectation is what a reply has to fit.
type expectation struct {
	identity  wire.Identity
	key       crypto.Signer
	authority trust.Authority
	now       trust.Clock
	named     bool // the identity is that in server.conf; see confText
	renewed   bool // the certificate is, and not just the configuration
}

// A reply that was checked.
type offer struct {
	files   []files.File
	creds   *trust.Credentials
	pending pending
}

// checkReply checks everything in e that can be checked. The error wraps errReply.
func checkReply(e *wire.Enrolled, want expectation) (*offer, error) {
	creds, err := checkIssued(e, want)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errReply, err)
	}
	text, err := confText(e, want.identity, want.named)
	if err != nil {
		return nil, advice.Errorf(remedyPushed, "%w: configuration: %w", errReply, err)
	}
	o := &offer{creds: creds, pending: pending{Identity: string(want.identity), Serial: e.Serial, Digest: e.Digest}}
	applied, err := json.Marshal(o.pending)
	if err != nil {
		return nil, err
	}
	o.files = []files.File{
		{Name: certificateFile, Data: []byte(e.Certificate), Mode: 0o644},
		{Name: caFile, Data: []byte(trust.EncodeCertificates(creds.Roots)),
			Mode: 0o644}, // for other programs: roots and nothing else
		{Name: confName, Data: text, Mode: 0o600},
		{Name: appliedFile, Data: applied, Mode: 0o600},
	}
	for _, p := range []struct {
		dir, ext string
		policies map[string]string
	}{
		{policyDir, ".policy", e.ActionPolicies},
		{regoDir, ".rego", e.OPAPolicies},
	} {
		for _, name := range slices.Sorted(maps.Keys(p.policies)) {
			if err := checkFileName(name); err != nil {
				return nil, advice.Errorf(remedyPushed, "%w: %w", errReply, err)
			}
			o.files = append(o.files, files.File{
				Name: p.dir + "/" + name + p.ext,
				Data: []byte(p.policies[name]),
				Mode: 0o600,
			})
		}
	}
	return o, nil
}

// checkIssued checks certificate, authority, serial and digest.
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
		return nil, fmt.Errorf("serial %.80q, and the certificate has %q", e.Serial, creds.Serial)
	}
	creds.Serial = e.Serial
	if digest := wire.Digest(e.Certificate, e.Files); e.Digest != digest {
		return nil, fmt.Errorf("digest %.80q, and what came has %q", e.Digest, digest)
	}
	return creds, nil
}

// confText returns the server.conf that e's configuration makes, after a look
// at what it would do to this node: one that sent it straight back into
// provisioning would have it enroll for ever. The name of a node that was named
// by its server.conf stays there if the configuration gives none: without it the
// node would have another name from then on.
func confText(e *wire.Enrolled, id wire.Identity, named bool) ([]byte, error) {
	settings := e.Configuration
	if len(settings) == 0 {
		return nil, errors.New("empty")
	}
	if _, is := settings[keyIdentity[0]]; named && !is {
		settings = maps.Clone(settings)
		settings[keyIdentity[0]] = string(id)
	}
	b, err := conffile.FormatSettings(settings, "Written by muster-server for "+string(id)+", certificate "+e.Serial+
		".\nChanges are lost when this machine is provisioned again.")
	if err != nil {
		return nil, err
	}
	c, err := parseConf(b)
	if err != nil {
		return nil, err
	}
	switch says := scanWords(b); { // as it will be read from the disk: in any case
	case says.Yes:
		return nil, errors.New("provision is true, which would have the node enroll for ever")
	case says.Other != "":
		return nil, errors.New("provision is neither true nor false, with which the node would not start")
	}
	if len(c.brokers) > 0 || c.srvDomain != "" {
		if _, err := discover.New(discover.Config{URLs: c.brokers, SRVDomain: c.srvDomain, Secure: true}); err != nil {
			return nil, link.OneLine(err)
		}
	}
	if c.identity != "" && c.identity != id {
		return nil, fmt.Errorf("identity is %q, want %q", string(c.identity), string(id))
	}
	return b, nil
}

// checkFileName checks the name of a policy, which becomes a file's. It cannot
// leave its directory, nor hide in it.
func checkFileName(name string) error {
	const allowed = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	if name == "" || len(name) > 128 || name[0] == '.' || strings.Trim(name, allowed) != "" {
		return fmt.Errorf("policy name %.200q, want 1 to 128 letters, digits, ., _ and -, and no dot first", name)
	}
	return nil
}
