package server

import (
	"errors"
	"io/fs"

	"muster/internal/inputfile"
	"muster/server/advice"
)

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
