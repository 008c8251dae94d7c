package daemon

import (
	"errors"
	"path/filepath"

	"muster/provisioner/httpapi"
)

// SocketOf returns the control socket of the provisioner with this configuration file. Only data_dir must be valid.
func SocketOf(path string) (string, error) {
	cfg, err := readUnchecked(path)
	if err != nil {
		return "", err
	}
	if cfg.DataDir == "" {
		return "", errors.New(path + ": data_dir: missing")
	}
	return cfg.socket(), nil
}

func (c *Config) socket() string { return filepath.Join(c.DataDir, httpapi.SocketName) }
