package daemon

import (
	"fmt"
	"path/filepath"

	"muster/internal/conffile"
	"muster/policies"
	"muster/provisioner"
)

// FallbackOf returns what configures nodes that their policy gives no
// configuration, as the configuration file at path has it. Like [SocketOf] it looks
// at nothing else, and starts nothing.
func FallbackOf(path string) (*policies.Fallback, error) {
	form := form(DefaultConfig())
	if err := conffile.LoadYAML(path, &form); err != nil {
		return nil, err
	}
	cfg := Config(form)
	cfg.resolve(filepath.Dir(path))
	if cfg.Configuration.Template != "" {
		return TemplateFallback(cfg.Configuration.Template)
	}
	return &policies.Fallback{Helper: cfg.Configuration.Helper != ""}, nil
}

// TemplateFallback returns what the template at path makes of nodes.
func TemplateFallback(path string) (*policies.Fallback, error) {
	t, err := readTemplate(path)
	if err != nil {
		return nil, err
	}
	return fallbackOf(t), nil
}

// readTemplate reads and compiles a template.
func readTemplate(path string) (templated, error) {
	b, err := conffile.ReadFile(path)
	if err != nil {
		return templated{}, err
	}
	t, err := newTemplate(string(b))
	if err != nil {
		return templated{}, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// fallbackOf returns what a configurator is to a replay.
func fallbackOf(c provisioner.Configurator) *policies.Fallback {
	switch c := c.(type) {
	case templated:
		return &policies.Fallback{Render: func(in *policies.Input) (map[string]string, error) {
			files, err := c.render(in)
			if err == nil {
				err = files.Check() // as the provisioner does
			}
			if err != nil {
				return nil, err
			}
			return files.Configuration, nil
		}}
	case helped:
		return &policies.Fallback{Helper: true}
	}
	return &policies.Fallback{}
}
