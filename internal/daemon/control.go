package daemon

import (
	"errors"
	"path/filepath"

	"muster/provisioner/httpapi"
)

// SocketOf returns the control socket of the provisioner that the configuration
// file at path is for. It looks at data_dir only: what else is wrong with the
// file is no reason not to reach a provisioner that runs.
func SocketOf(path string) (string, error) {
	cfg, err := readForm(path)
	if err != nil {
		return "", err
	}
	if cfg.DataDir == "" {
		return "", errors.New(path + ": data_dir: missing")
	}
	return cfg.socket(), nil
}

// socket is where operators reach the provisioner.
func (c *Config) socket() string { return filepath.Join(c.DataDir, httpapi.SocketName) }
