package daemon

import (
	"crypto/x509"
	"errors"
	"fmt"
	"regexp"
	"time"

	"muster/internal/conffile"
	"muster/internal/keyfile"
	"muster/provisioner/webhook"
)

// maxWebhooks bounds them: each is a consumer on the streams of events, and a
// label of metrics. Chosen.
const maxWebhooks = 16

// WebhookConfig is one endpoint that is told of events.
type WebhookConfig struct {
	// Name tells it from others: lower-case letters, digits and dashes, at most
	// 32. What waits for the endpoint waits under it. Required.
	Name string `yaml:"name"`

	// URL is where events go, https:// only. Required.
	URL string `yaml:"url"`

	// Secret is a file with what signs them, readable by the provisioner only:
	// whsec_ and base64, one to a line. All sign, so that the endpoint can go from
	// one to the next. Required.
	Secret string `yaml:"secret"`

	// Events are types, or what they begin with; io.muster. may be left out.
	// Defaults to node.refused, attempt.refused, node.cloned and alarm.
	Events []string `yaml:"events"`

	// Timeout bounds one request, 1s to 30s. Defaults to 15s.
	Timeout conffile.Span `yaml:"timeout"`

	// CA are the authorities of the endpoint's certificate, PEM. Defaults to the
	// system's.
	CA string `yaml:"ca"`
}

// webhookName is the form of a name: it becomes part of a consumer's.
var webhookName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// validateWebhooks reports what is wrong with the webhooks, without quoting a URL.
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
			v.Bad(key+".name", "is %q, which another one has", w.Name)
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

// loadWebhooks loads all, and adds what is wrong with each.
func loadWebhooks(cfg Config, opts Options, add func(key string, err error)) []webhook.Config {
	var all []webhook.Config
	for i := range cfg.Webhooks {
		w, err := loadWebhook(&cfg.Webhooks[i], opts)
		add(fmt.Sprintf("webhooks[%d]", i), err)
		all = append(all, w)
	}
	return all
}

// loadWebhook reads the files of a webhook, whose other values are valid.
func loadWebhook(c *WebhookConfig, opts Options) (webhook.Config, error) {
	cfg := opts.Webhooks // what tests change
	cfg.Name, cfg.URL, cfg.Timeout, cfg.Version, cfg.Log, cfg.Now = c.Name, c.URL, time.Duration(c.Timeout), opts.Version, opts.Log, opts.Now
	names := c.Events
	if len(names) == 0 {
		names = webhook.DefaultEvents
	}
	var errs []error
	add := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
		}
	}
	cfg.Events, _ = webhook.Types(names) // or the configuration is not valid, which was said
	if c.Secret != "" {
		b, err := keyfile.ReadSecret(c.Secret)
		if err == nil {
			if cfg.Secrets, err = webhook.ParseSecrets(b); err != nil {
				err = fmt.Errorf("%s: %w", c.Secret, err)
			}
			clear(b)
		}
		add("secret", err)
	}
	if c.CA != "" {
		b, err := conffile.ReadFile(c.CA)
		cfg.Roots = x509.NewCertPool()
		if err == nil && !cfg.Roots.AppendCertsFromPEM(b) {
			err = fmt.Errorf("%s: no certificate in PEM", c.CA)
		}
		add("ca", err)
	}
	return cfg, errors.Join(errs...)
}
