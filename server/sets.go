package server

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
	"muster/server/trust"
)

// The first five have links for other programs; only the agent uses the last four.
const (
	keyFile         = "private.pem"
	certificateFile = "certificate.pem"
	caFile          = "ca.pem"
	confName        = "server.conf"
	policyDir       = "policies"
	regoDir         = "policies/rego"
	csrFile         = "request.csr"
	appliedFile     = "applied.json"
	factsName       = "facts.json"  // those of the request for this set
	factsErrorName  = "facts_error" // why they are not the machine's; missing: they are
)

const (
	lockName   = ".lock"
	clockFile  = ".clock"
	ordersFile = ".orders"
)

const maxPEMBytes = wire.MaxReplyBytes

// sets are the node's files: one rename switches a whole set (package files).
type sets struct {
	dir  *files.Dir
	ssl  string
	conf string
	log  *slog.Logger
}

func newSets(cfg Config) (*sets, error) {
	conf, err := filepath.Abs(cfg.ConfFile)
	if err != nil {
		return nil, err
	}
	ssl, err := filepath.Abs(cfg.SSLDir)
	if err != nil {
		return nil, err
	}
	shown := map[string]string{confName: conf}
	if files.EachLinked {
		for _, name := range []string{keyFile, certificateFile, caFile, policyDir} {
			shown[name] = filepath.Join(ssl, name)
		}
	}
	dir := files.New(files.Config{
		Dir:   ssl,
		Links: shown,
		Kept: func(path, kept string) {
			cfg.Log.Warn("local file kept before it is replaced",
				"path", path, "kept", kept)
		},
		Step: cfg.hooks.steps,
		Sync: cfg.hooks.sync,
	})
	return &sets{dir: dir, ssl: ssl, conf: conf, log: cfg.Log}, nil
}

func (s *sets) own(name string) string { return filepath.Join(s.ssl, name) }

// apply puts a set with the staged key and its request in force. After an error the former set is still in force, and
// apply can be called again.
func (s *sets) apply(ctx context.Context, set []files.File) error {
	if err := s.dir.Switch(set, keyFile, csrFile); err != nil {
		return adviseOccupied(err)
	}
	if err := s.dir.Clean(); err != nil {
		s.log.ErrorContext(ctx, "previous set of files not removed", "err", err)
	}
	return nil
}

func adviseOccupied(err error) error {
	if errors.Is(err, files.ErrOccupied) {
		return advice.New(err, "move it away, or use another --config and --ssl-dir")
	}
	return err
}

func (s *sets) credentials(id wire.Identity, now trust.Clock) (*trust.Credentials, error) {
	key, err := trust.ReadKey(s.dir.Path(keyFile))
	if err != nil {
		return nil, err
	}
	certificate, err := inputfile.Read(s.dir.Path(certificateFile), inputfile.Configured, maxPEMBytes)
	if err != nil {
		return nil, err
	}
	roots, err := s.certificates(caFile)
	if err != nil {
		return nil, err
	}
	c, err := trust.Check(key, string(certificate), roots, id, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir.Path(certificateFile), err)
	}
	return c, nil
}

// owner returns the name in the certificate in force, even an invalid one; "" if the name is id.
func (s *sets) owner(id wire.Identity) (string, error) {
	if _, err := trust.ReadKey(s.dir.Path(keyFile)); err != nil {
		return "", err
	}
	chain, err := s.certificates(certificateFile)
	if err != nil {
		return "", err
	}
	return trust.Owner(chain[0], id), nil
}

// knownRoots returns the roots in force, also beside an expired certificate of id; nil: none.
func (s *sets) knownRoots(id wire.Identity) []*x509.Certificate {
	if owner, err := s.owner(id); err != nil || owner != "" {
		return nil
	}
	roots, _ := s.certificates(caFile)
	return roots
}

func (s *sets) certificates(name string) ([]*x509.Certificate, error) {
	b, err := inputfile.Read(s.dir.Path(name), inputfile.Configured, maxPEMBytes)
	if err != nil {
		return nil, err
	}
	certificates, err := trust.ParseCertificates(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir.Path(name), err)
	}
	return certificates, nil
}

// foreign returns an error if key and certificate in force belong to another node. The key may be the other node's only
// one, or a copy: only an operator can tell.
func (s *sets) foreign(id wire.Identity) error {
	owner, err := s.owner(id)
	if err != nil || owner == "" {
		return nil
	}
	remedy := fmt.Sprintf("use another --ssl-dir and --config for this node; "+
		"or remove %s if it was copied from another machine or %s is no longer needed; "+
		"or set identity = %s in server.conf if the machine's host name has changed", s.ssl, owner, owner)
	return advice.Errorf(remedy, "%s belongs to %s, and this node is %s", s.ssl, owner, id)
}

// cannotRead reports whether a file could not be read, but may be intact.
func cannotRead(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist)
}

// checkSafe refuses a directory that another user could change: it has the key and the authority that the node trusts.
func (s *sets) checkSafe() error {
	err := inputfile.Safe(s.ssl)
	if errors.Is(err, fs.ErrNotExist) { // the agent makes it
		return nil
	}
	if err != nil {
		return advice.New(err, "make it a directory that only the agent's user can change, "+
			"or use another --ssl-dir")
	}
	return nil
}

// unsafe returns the files that another user could change, and so lead the node to another fleet or other facts. They
// are used all the same: a mode never takes a machine out of its fleet.
func (v *inspection) unsafe(cfg *Config, conf string) error {
	paths := []string{conf, cfg.factsFile(v.token, v.conf), v.registrationFile()}
	if v.token != nil {
		paths = append(paths, v.token.file)
	}
	var errs []error
	for _, path := range paths {
		if path == "" {
			continue
		}
		if err := inputfile.Safe(path); errors.Is(err, inputfile.ErrUnsafe) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
