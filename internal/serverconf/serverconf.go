// Package serverconf reads the settings of server.conf that the agent uses. The provisioner checks with it what it
// pushes, so that it issues no configuration that the agent refuses.
package serverconf

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/discover"
	"muster/internal/nearest"
	"muster/internal/span"
	"muster/internal/wire"
)

// Bounds of alive and registration intervals: short ones burden the brokers, long ones report too late.
const (
	minInterval = time.Second
	maxInterval = 24 * time.Hour

	defaultRegistrationInterval = 5 * time.Minute
	defaultAliveInterval        = 30 * time.Minute
)

// A Conf holds the settings that the agent uses.
type Conf struct {
	Identity             wire.Identity // "": not set
	Brokers              []string
	SRVDomain            string
	FactsFile            string
	RegistrationFile     string
	RegistrationInterval time.Duration // 0: never
	AliveInterval        time.Duration
	LogLevel             *slog.Level // nil: not set

	// Faults are values that cannot be used, joined, or nil. Their settings have their defaults.
	Faults error
}

// The names of the settings: muster's first, then Choria's, as in the documentation.
var (
	KeyProvision    = []string{"provision", "plugin.choria.server.provision"}
	KeyIdentity     = []string{"identity"}
	keyBrokers      = []string{"brokers", "plugin.choria.middleware_hosts"}
	keySRVDomain    = []string{"srv_domain", "plugin.choria.srv_domain"}
	keyFacts        = []string{"facts_file"}
	keyRegistration = []string{"registration_file", "plugin.choria.registration.file_content.data"}
	keyRegInterval  = []string{"registration_interval", "registerinterval"}
	keyAlive        = []string{"alive_interval"}
	keyLogLevel     = []string{"log_level", "loglevel"}

	known = slices.Concat(KeyProvision, KeyIdentity, keyBrokers, keySRVDomain, keyFacts, keyRegistration,
		keyRegInterval, keyAlive, keyLogLevel)
)

// Parse reads the settings, by key.
func Parse(settings map[string]string) *Conf {
	r := reader{settings: settings}
	c := &Conf{RegistrationInterval: defaultRegistrationInterval, AliveInterval: defaultAliveInterval}
	r.read(KeyProvision, func(v string) error { _, err := ParseBool(v); return err })
	r.read(KeyIdentity, func(v string) (err error) { c.Identity, err = wire.ParseName(v); return err })
	r.read(keyBrokers, func(v string) error {
		for _, u := range splitList(v) {
			if _, err := discover.NormalizeURL(u, true); err != nil {
				return err
			}
		}
		c.Brokers = splitList(v)
		return nil
	})
	r.read(keySRVDomain, func(v string) error { c.SRVDomain = v; return nil })
	r.read(keyFacts, func(v string) error { c.FactsFile = v; return nil })
	r.read(keyRegistration, func(v string) error { c.RegistrationFile = v; return nil })
	r.read(keyRegInterval, func(v string) (err error) {
		c.RegistrationInterval, err = parseInterval(v, true, defaultRegistrationInterval)
		return err
	})
	r.read(keyAlive, func(v string) (err error) {
		c.AliveInterval, err = parseInterval(v, false, defaultAliveInterval)
		return err
	})
	r.read(keyLogLevel, func(v string) error {
		level, err := parseLevel(v)
		if err == nil {
			c.LogLevel = &level
		}
		return err
	})
	if len(c.Brokers) > 0 && c.SRVDomain != "" {
		r.errs = append(r.errs, errors.New("brokers and srv_domain are both set, want one"))
	}
	c.Faults = errors.Join(r.errs...)
	return c
}

// WithoutComment returns a value up to a # behind a blank, as people write comments.
func WithoutComment(value string) string {
	for i := range len(value) {
		if value[i] == '#' && (i == 0 || value[i-1] == ' ' || value[i-1] == '\t') {
			return strings.TrimRight(value[:i], " \t")
		}
	}
	return value
}

// CheckPushed returns an error that lists everything because of which the agent id refuses a pushed configuration, or
// would enroll again forever with it. [wire.Files.Check] checks the text of keys and values.
func CheckPushed(id wire.Identity, settings map[string]string) error {
	c := Parse(settings)
	if c.Faults != nil {
		return c.Faults
	}
	for key, value := range settings {
		if slices.Contains(known, key) && WithoutComment(value) != value {
			return fmt.Errorf("%s: the agent takes # behind a blank for a comment", key)
		}
		if !slices.Contains(KeyProvision, strings.ToLower(key)) {
			continue
		}
		switch yes, err := ParseBool(value); {
		case err != nil:
			return errors.New("provision is neither true nor false: the agent would not start")
		case yes:
			return errors.New("provision is true: the node would enroll again forever")
		}
	}
	if len(c.Brokers) > 0 || c.SRVDomain != "" {
		cfg := discover.Config{URLs: c.Brokers, SRVDomain: c.SRVDomain, Secure: true}
		if err := cfg.Check(); err != nil {
			return err
		}
	}
	if c.Identity != "" && c.Identity != id {
		return fmt.Errorf("identity is %q, want %q", string(c.Identity), string(id))
	}
	return nil
}

// ParseBool reads a value of [KeyProvision].
func ParseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "true", "yes", "y", "on":
		return true, nil
	case "0", "false", "no", "n", "off":
		return false, nil
	}
	return false, fmt.Errorf("is %.80q, want true or false", s)
}

func splitList(s string) []string {
	var list []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	return list
}

type reader struct {
	settings map[string]string
	errs     []error
}

func (r *reader) read(names []string, set func(string) error) {
	for _, name := range names {
		if v, ok := r.settings[name]; ok {
			if err := set(WithoutComment(v)); err != nil {
				r.errs = append(r.errs, fmt.Errorf("%s: %w", name, err))
			}
			return
		}
	}
}

// parseInterval reads seconds, as Choria writes them, or a span. zero allows 0, which means never.
func parseInterval(s string, zero bool, standard time.Duration) (time.Duration, error) {
	d, err := span.Parse(s)
	if n, e := strconv.ParseUint(s, 10, 31); e == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	switch {
	case err != nil:
		return standard, fmt.Errorf("is %.80q, want seconds or a span such as 5m", s)
	case zero && d == 0:
		return 0, nil
	case d < minInterval || d > maxInterval:
		return standard, fmt.Errorf("is %v, want %v to %v", d, minInterval, maxInterval)
	}
	return d, nil
}

func parseLevel(s string) (level slog.Level, err error) {
	switch strings.ToLower(s) {
	case "warning":
		return slog.LevelWarn, nil
	case "fatal":
		return slog.LevelError, nil
	}
	if level.UnmarshalText([]byte(s)) != nil {
		err = fmt.Errorf("is %.80q, want debug, info, warn or error", s)
	}
	return level, err
}

// Misspelled returns an error that names the known key that is nearest to key, or nil if key is known or far from all:
// other programs may read it.
func Misspelled(key string) error {
	meant := nearest.Word(key, known, 3)
	if meant == key || meant == "" {
		return nil
	}
	return fmt.Errorf("unknown key %q: did you mean %q?", key, meant)
}
