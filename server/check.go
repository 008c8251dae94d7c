package server

import (
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/internal/conffile"
	"muster/internal/discover"
	"muster/internal/wire"
)

// errReply means that a reply to this node's own request is not what it asked
// for. Nothing is written; the node asks again.
var errReply = errors.New("reply refused")

// remedyPushed is about a configuration that came as it was meant and that the node
// cannot use: the provisioner's log says that all is well.
const remedyPushed = "the policy, template or helper gives out what no node can use: correct it, and the node asks again by itself; " +
	"if it does not give that out, somebody alters replies on the way"

// An expectation is what a reply has to fit.
type expectation struct {
	identity wire.Identity
	key      crypto.Signer
	pin      string              // hex SHA-256 of the authority, from the token; empty: any, or what known says
	known    []*x509.Certificate // the roots in force, of a renewal; nil: any, or what pin says
	now      func(notBefore time.Time) time.Time
	token    *token // of the node; nil if it has none
	named    bool   // the identity is that in server.conf; see confText
}

// checkReply checks everything in e that can be checked, and returns the set
// that it makes. The error wraps errReply.
func checkReply(e *wire.Enrolled, want expectation) (*set, *credentials, error) {
	creds, roots, err := checkIssued(e, want)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errReply, err)
	}
	files := []setFile{
		{certificateFile, []byte(e.Certificate), 0o644},
		{caFile, []byte(encodeCertificates(roots)), 0o644}, // for other programs, too: roots and nothing else
	}
	server, err := confText(e, want.identity, want.named)
	if err != nil {
		return nil, nil, &cause{what: fmt.Errorf("%w: configuration: %w", errReply, err), remedy: remedyPushed}
	}
	files = append(files, setFile{confName, server, 0o600})
	for _, p := range []struct {
		dir, ext string
		policies map[string]string
	}{
		{policyDir, ".policy", e.ActionPolicies},
		{regoDir, ".rego", e.OPAPolicies},
	} {
		for _, name := range slices.Sorted(maps.Keys(p.policies)) {
			if err := checkFileName(name); err != nil {
				return nil, nil, &cause{what: fmt.Errorf("%w: %w", errReply, err), remedy: remedyPushed}
			}
			files = append(files, setFile{p.dir + "/" + name + p.ext, []byte(p.policies[name]), 0o600})
		}
	}
	confirm := wordOn(want.identity, e)
	b, err := confirm.encode()
	if err != nil {
		return nil, nil, err
	}
	files = append(files, setFile{untriedFile, []byte(untriedText), 0o600}, setFile{appliedFile, b, 0o600})
	return &set{files: files, pending: confirm}, creds, nil
}

// wordOn is what a node says of an offer: that it has applied it, or cannot use it.
func wordOn(id wire.Identity, e *wire.Enrolled) pending {
	return pending{Identity: string(id), Serial: e.Serial, Digest: e.Digest}
}

// checkIssued checks certificate, authority, serial and digest. It also returns
// the roots to trust.
func checkIssued(e *wire.Enrolled, want expectation) (*credentials, []*x509.Certificate, error) {
	roots, cross, err := splitAuthority(e.CA)
	if err != nil {
		return nil, nil, err
	}
	creds, err := checkCredentials(want.key, e.Certificate, roots, want.identity, want.now)
	if err != nil {
		return nil, nil, err
	}
	if want.pin != "" || want.known != nil {
		// A certificate is backdated, and may be older than the authority that
		// is changed to.
		others := slices.Concat(creds.chain[1:], cross)
		at := want.now(latestStart(slices.Concat(creds.chain[:1], roots, others)...))
		if err := checkAuthority(want, roots, others, at); err != nil {
			return nil, nil, err
		}
	}
	if e.Serial != strings.ToLower(e.Serial) || strings.TrimLeft(e.Serial, "0") != creds.serial {
		return nil, nil, fmt.Errorf("serial %.80q, and the certificate has %q", e.Serial, creds.serial)
	}
	creds.serial = e.Serial
	if digest := wire.Digest(e.Certificate, e.Files); e.Digest != digest {
		return nil, nil, fmt.Errorf("digest %.80q, and what came has %q", e.Digest, digest)
	}
	return creds, roots, nil
}

// checkAuthority checks that the roots are those that want allows. Of a renewal the
// roots in force count as much as the pin: they came here by its word, or by that of a
// token before, and the token that lies on the node may pin an authority that the fleet
// has left behind since, whose words are gone by now.
func checkAuthority(want expectation, roots, others []*x509.Certificate, at time.Time) error {
	if want.pin == "" {
		return checkKnown(want.known, roots, others, at)
	}
	err := checkPin(want.pin, roots, others, at)
	if err != nil && want.known != nil && checkKnown(want.known, roots, others, at) == nil {
		return nil
	}
	return err
}

// confText returns the server.conf that e's configuration makes, after a look
// at what it would do to this node: one that sent it straight back into
// provisioning would have it enroll for ever. The name of a node that was named by its
// server.conf stays there if the configuration gives none: without it the node would look for
// another one's certificate from then on.
func confText(e *wire.Enrolled, id wire.Identity, named bool) ([]byte, error) {
	settings := e.Configuration
	if len(settings) == 0 {
		return nil, errors.New("empty")
	}
	if _, is := settings[keyIdentity[0]]; named && !is {
		settings = maps.Clone(settings)
		settings[keyIdentity[0]] = string(id)
	}
	b, err := conffile.FormatSettings(settings,
		"Written by muster-server for "+string(id)+", certificate "+e.Serial+".\nChanges are lost when this machine is provisioned again.")
	if err != nil {
		return nil, err
	}
	c, err := parseConf(b)
	if err != nil {
		return nil, err
	}
	// As it will be read from the disk: in any case.
	switch says := scanProvision(b); {
	case says.Yes:
		return nil, errors.New("provision is true, which would have the node enroll for ever")
	case says.Other != "":
		return nil, errors.New("provision is neither true nor false, with which the node would not start")
	}
	if len(c.brokers) > 0 || c.srvDomain != "" {
		if _, err := discover.New(discover.Config{URLs: c.brokers, SRVDomain: c.srvDomain, Secure: true}); err != nil {
			return nil, oneLine(err)
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
