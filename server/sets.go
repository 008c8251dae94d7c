package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/files"
	"muster/server/trust"
)

// Names in a set. Programs find the first five, through links; the rest is the
// agent's own.
const (
	keyFile         = "private.pem"
	certificateFile = "certificate.pem"
	caFile          = "ca.pem"
	confName        = "server.conf"
	policyDir       = "policies"
	regoDir         = "policies/rego"
	csrFile         = "request.csr"  // what the certificate was asked for with
	appliedFile     = "applied.json" // what is yet to be confirmed
)

// Names of the agent's own files beside the sets.
const (
	lockName   = ".lock"
	clockFile  = ".clock"  // the latest time seen in the fleet
	ordersFile = ".orders" // commands that were accepted
)

// maxPEMBytes bounds a file of certificates.
const maxPEMBytes = wire.MaxReplyBytes

// sets are what the node was given: key, certificate, authority, configuration,
// policies, and what is yet to be confirmed. Everything that belongs together is
// one set, and one rename switches all of it (package files).
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
	for _, name := range []string{keyFile, certificateFile, caFile, policyDir} {
		shown[name] = filepath.Join(ssl, name)
	}
	dir := files.New(files.Config{
		Dir:   ssl,
		Shown: shown,
		Step:  cfg.hooks.steps,
		Sync:  cfg.hooks.sync,
	})
	return &sets{dir: dir, ssl: ssl, conf: conf, log: cfg.Log}, nil
}

// own returns the path of one of the agent's own files.
func (s *sets) own(name string) string { return filepath.Join(s.ssl, name) }

// apply makes a set of these files, the staged key and its request the one in
// force. If it fails, the set before is in force still, and apply can be tried
// again; once the switch has happened it does not fail any more.
func (s *sets) apply(ctx context.Context, set []files.File) error {
	if err := s.dir.Switch(set, keyFile, csrFile); err != nil {
		return adviseOccupied(err)
	}
	if err := s.dir.Clean(); err != nil {
		s.log.ErrorContext(ctx, "set before not cleared away", "err", err)
	}
	return nil
}

func adviseOccupied(err error) error {
	if errors.Is(err, files.ErrOccupied) {
		return advice.New(err, "move it away, or give this node another --config and --ssl-dir")
	}
	return err
}

// credentials reads and checks key, certificate and authority in force.
func (s *sets) credentials(id wire.Identity, now trust.Clock) (*trust.Credentials, error) {
	key, err := trust.ReadKey(s.dir.Path(keyFile))
	if err != nil {
		return nil, err
	}
	certificate, err := files.Read(s.dir.Path(certificateFile), maxPEMBytes)
	if err != nil {
		return nil, err
	}
	ca, err := files.Read(s.dir.Path(caFile), maxPEMBytes)
	if err != nil {
		return nil, err
	}
	roots, err := trust.ParseCertificates(string(ca))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir.Path(caFile), err)
	}
	c, err := trust.Check(key, string(certificate), roots, id, now)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.dir.Path(certificateFile), err)
	}
	return c, nil
}

// owner returns the name in the certificate in force, valid or not, beside a
// key that works: "" if it is id's. The error means that there are no such two.
func (s *sets) owner(id wire.Identity) (string, error) {
	if _, err := trust.ReadKey(s.dir.Path(keyFile)); err != nil {
		return "", err
	}
	b, err := files.Read(s.dir.Path(certificateFile), maxPEMBytes)
	if err != nil {
		return "", err
	}
	chain, err := trust.ParseCertificates(string(b))
	if err != nil {
		return "", err
	}
	return trust.Owner(chain[0], id), nil
}

// foreign reports, as an error with its remedy, that key and certificate in
// force are another node's. The key may be the only proof of that name, and a
// directory that came along with a copied disk looks the same: only a person can
// tell, and remove it.
func (s *sets) foreign(id wire.Identity) error {
	owner, err := s.owner(id)
	if err != nil || owner == "" {
		return nil
	}
	return advice.Errorf(fmt.Sprintf("give this node a directory and a configuration of its own (--ssl-dir, --config); "+
		"or remove %s, if it came with a copied disk or %s is given up; or set identity = %s in server.conf, if this machine "+
		"is called otherwise since", s.ssl, owner, owner), "%s belongs to %s, and this node is %s", s.ssl, owner, id)
}

// cannotRead reports whether a file may be there, whole, and could not be read now.
func cannotRead(err error) bool {
	var path *fs.PathError
	return errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist)
}
