package daemon

import (
	"errors"
	"path/filepath"

	"muster/internal/conffile"
	"muster/provisioner/httpapi"
)

// SocketOf returns the control socket of the provisioner that the configuration
// file at path is for. It looks at data_dir only: what else is wrong with the
// file is no reason not to reach a provisioner that runs.
func SocketOf(path string) (string, error) {
	form := form(DefaultConfig())
	if err := conffile.LoadYAML(path, &form); err != nil {
		return "", err
	}
	cfg := Config(form)
	if cfg.DataDir == "" {
		return "", errors.New(path + ": data_dir: missing")
	}
	cfg.resolve(filepath.Dir(path))
	return cfg.socket(), nil
}

// socket is where operators reach the provisioner.
func (c *Config) socket() string { return filepath.Join(c.DataDir, httpapi.SocketName) }
