package server

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/conffile"
	"muster/internal/discover"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/server/files"
	"muster/server/link"
)

var (
	// ErrMissing means that the file does not exist.
	ErrMissing = errors.New("no such file")

	// ErrUnusable means that the file is empty, truncated, malformed, or not a regular file.
	ErrUnusable = errors.New("unusable")
)

const maxConfBytes = 1 << 20

// Bounds of alive and registration intervals: short ones burden the brokers, long ones report too late.
const (
	minInterval = time.Second
	maxInterval = 24 * time.Hour

	defaultRegistrationInterval = 5 * time.Minute
	defaultAliveInterval        = 30 * time.Minute
)

type conf struct {
	provision            *bool
	identity             wire.Identity
	brokers              []string
	srvDomain            string
	factsFile            string
	registrationFile     string
	registrationInterval time.Duration // 0: never
	aliveInterval        time.Duration
	logLevel             *slog.Level
}

// muster's name first, then Choria's, as in the documentation.
var (
	keyProvision    = []string{"provision", "plugin.choria.server.provision"}
	keyIdentity     = []string{"identity"}
	keyBrokers      = []string{"brokers", "plugin.choria.middleware_hosts"}
	keySRVDomain    = []string{"srv_domain", "plugin.choria.srv_domain"}
	keyFacts        = []string{"facts_file"}
	keyRegistration = []string{"registration_file", "plugin.choria.registration.file_content.data"}
	keyRegInterval  = []string{"registration_interval", "registerinterval"}
	keyAlive        = []string{"alive_interval"}
	keyLogLevel     = []string{"log_level", "loglevel"}
)

// lenientConf holds the settings that apply even if the rest of server.conf is damaged.
type lenientConf struct {
	ProvisionSetting
	identities []string
}

// readConf reads a server.conf. The error wraps [ErrMissing] or [ErrUnusable]; says holds all that could be read.
func readConf(path string) (c *conf, says lenientConf, err error) {
	b, err := files.Read(path, maxConfBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, says, fmt.Errorf("%s: %w", path, ErrMissing)
	case err != nil:
		return nil, says, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	says = scanLenient(b)
	c, err = parseConf(b)
	if err != nil {
		return nil, says, fmt.Errorf("%s: %w: %w", path, ErrUnusable, link.OneLine(err))
	}
	if says.identities = nil; c.identity != "" {
		says.identities = []string{string(c.identity)}
	}
	return c, says, nil
}

// A ProvisionSetting is the value of `provision` in server.conf; zero: not set.
type ProvisionSetting struct {
	Yes, No bool
	Invalid string // a value that is neither
}

// scanLenient reads only the lines that set provision and identity. It ignores an unfinished last line: a truncated
// name may be another node's.
func scanLenient(b []byte) lenientConf {
	var w lenientConf
	for line := range strings.Lines(strings.TrimPrefix(string(b), "\ufeff")) { // byte order mark of some editors
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch yes, err := parseBool(value); {
		case key == keyIdentity[0] && value != "" && strings.HasSuffix(line, "\n") &&
			!slices.Contains(w.identities, value):
			w.identities = append(w.identities, value)
		case !slices.Contains(keyProvision, strings.ToLower(key)):
		case err != nil:
			w.Invalid = value
		case yes:
			w.Yes = true
		default:
			w.No = true
		}
	}
	return w
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "true", "yes", "y", "on":
		return true, nil
	case "0", "false", "no", "n", "off":
		return false, nil
	}
	return false, fmt.Errorf("is %.80q, want true or false", s)
}

// parseConf lists every mistake in its error.
func parseConf(b []byte) (*conf, error) {
	settings, err := conffile.ParseSettings(b)
	if err != nil {
		return nil, err
	}
	if len(settings.Keys()) == 0 {
		return nil, errors.New("no settings in it")
	}
	r := confReader{settings: settings}
	c := &conf{registrationInterval: defaultRegistrationInterval, aliveInterval: defaultAliveInterval}
	r.read(keyProvision, func(v string) error {
		yes, err := parseBool(v)
		c.provision = &yes
		return err
	})
	r.read(keyIdentity, func(v string) (err error) { c.identity, err = wire.ParseIdentity(v); return err })
	r.read(keyBrokers, func(v string) error {
		c.brokers = splitList(v)
		for _, u := range c.brokers {
			if _, err := discover.NormalizeURL(u, true); err != nil {
				return err
			}
		}
		return nil
	})
	r.read(keySRVDomain, func(v string) error { c.srvDomain = v; return nil })
	r.read(keyFacts, func(v string) error { c.factsFile = v; return nil })
	r.read(keyRegistration, func(v string) error { c.registrationFile = v; return nil })
	r.read(keyRegInterval, func(v string) (err error) {
		c.registrationInterval, err = parseInterval(v, true)
		return err
	})
	r.read(keyAlive, func(v string) (err error) {
		c.aliveInterval, err = parseInterval(v, false)
		return err
	})
	r.read(keyLogLevel, func(v string) error {
		level, err := parseLevel(v)
		c.logLevel = &level
		return err
	})
	if len(c.brokers) > 0 && c.srvDomain != "" {
		r.errs = append(r.errs, fmt.Errorf("brokers and srv_domain are both set, want one"))
	}
	if len(r.errs) > 0 {
		return nil, errors.Join(r.errs...)
	}
	return c, nil
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

type confReader struct {
	settings *conffile.Settings
	errs     []error
}

func (r *confReader) read(names []string, set func(string) error) {
	for _, name := range names {
		if v, ok := r.settings.Get(name); ok {
			if err := set(v); err != nil {
				r.errs = append(r.errs, fmt.Errorf("%s: %w", name, err))
			}
			return
		}
	}
}

// parseInterval reads seconds, as Choria writes them, or a span. zero allows 0, which means never.
func parseInterval(s string, zero bool) (time.Duration, error) {
	d, err := span.Parse(s)
	if n, e := strconv.ParseUint(s, 10, 31); e == nil {
		d, err = time.Duration(n)*time.Second, nil
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("is %.80q, want seconds or a span such as 5m", s)
	case zero && d == 0:
		return 0, nil
	case d < minInterval || d > maxInterval:
		return 0, fmt.Errorf("is %v, want %v to %v", d, minInterval, maxInterval)
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
