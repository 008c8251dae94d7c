package demo

import (
	"crypto"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"muster/jwt"
)

// emptyDir returns an error if there is something in dir.
func emptyDir(dir string) error {
	if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s: not empty (%s, ...): give a new directory", dir, entries[0].Name())
	}
	return nil
}

// signerKey reads the key of an installation's signer.
func signerKey(home string) (crypto.Signer, error) {
	b, err := os.ReadFile(filepath.Join(home, "signer-key.pem"))
	if err != nil {
		return nil, err
	}
	return jwt.ParsePrivateKey(b, nil)
}

// logs are log files that are open. The zero value is none.
type logs []*os.File

// open returns a logger into a new file.
func (l *logs) open(path string) (*slog.Logger, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	*l = append(*l, file)
	return slog.New(slog.NewTextHandler(file, nil)), nil
}

func (l *logs) close() error {
	var errs []error
	for _, file := range *l {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}
