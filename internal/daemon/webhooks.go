package daemon

import (
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"time"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/provisioner/webhook"
)

// Each webhook needs a consumer on the event streams and a label in metrics.
const maxWebhooks = 16

// WebhookConfig is one endpoint for events.
type WebhookConfig struct {
	// Name has lower-case letters, digits and dashes, at most 32.
	Name string `yaml:"name"`

	// URL is https:// only.
	URL string `yaml:"url"`

	// File of signing secrets, one per line: whsec_ and base64. All sign each event, for rotation.
	Secret string `yaml:"secret"`

	// Types or prefixes; io.muster. may be left out.
	Events []string `yaml:"events"`

	Timeout conffile.Span `yaml:"timeout"`

	// PEM file; default the system's
	CA string `yaml:"ca"`
}

// The name becomes part of a consumer's name.
var webhookName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// validateWebhooks quotes no URL, since a URL may contain secrets.
func (c *Config) validateWebhooks(v *Mistakes) {
	if n := len(c.Webhooks); n > maxWebhooks {
		v.Bad("webhooks", "has %d, limit %d", n, maxWebhooks)
	}
	names := map[string]bool{}
	for i := range c.Webhooks {
		w, key := &c.Webhooks[i], fmt.Sprintf("webhooks[%d]", i)
		switch {
		case !webhookName.MatchString(w.Name):
			v.Bad(key+".name", "is %.64q, want lower-case letters, digits and dashes, 1 to 32", w.Name)
		case names[w.Name]:
			v.Bad(key+".name", "is %q, which is used twice", w.Name)
		}
		names[w.Name] = true
		_, err := webhook.ParseURL(w.URL)
		v.Check(key+".url", err)
		v.Required(key+".secret", w.Secret)
		_, err = webhook.Types(w.Events)
		v.Check(key+".events", err)
		if w.Timeout != 0 {
			within(v, key+".timeout", time.Duration(w.Timeout), webhook.MinTimeout, webhook.MaxTimeout)
		}
	}
}

func loadWebhooks(cfg Config, opts Options, add func(key string, err error)) []webhook.Config {
	var all []webhook.Config
	for i := range cfg.Webhooks {
		w, err := loadWebhook(&cfg.Webhooks[i], opts)
		add(fmt.Sprintf("webhooks[%d]", i), err)
		all = append(all, w)
	}
	return all
}

func loadWebhook(c *WebhookConfig, opts Options) (webhook.Config, error) {
	cfg := opts.Webhooks
	cfg.Name, cfg.URL, cfg.Timeout, cfg.Version, cfg.Log, cfg.Now = c.Name, c.URL, time.Duration(c.Timeout),
		opts.Version, opts.Log, opts.Now
	names := c.Events
	if len(names) == 0 {
		names = webhook.DefaultEvents
	}
	var errs [2]error
	cfg.Events, _ = webhook.Types(names) // validated before
	if c.Secret != "" {
		b, err := keyfile.ReadSecret(c.Secret, inputfile.Configured)
		if err == nil {
			if cfg.Secrets, err = webhook.ParseSecrets(b); err != nil {
				err = fmt.Errorf("%s: %w", c.Secret, err)
			}
			clear(b)
		}
		errs[0] = conffile.Prefix("secret", err)
	}
	if c.CA != "" {
		b, err := inputfile.ReadText(c.CA, inputfile.Configured)
		cfg.Roots = x509.NewCertPool()
		if err == nil && !cfg.Roots.AppendCertsFromPEM(b) {
			err = fmt.Errorf("%s: no certificate in PEM", c.CA)
		}
		errs[1] = conffile.Prefix("ca", err)
	}
	return cfg, errors.Join(errs[:]...)
}
