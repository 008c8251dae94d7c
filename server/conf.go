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

// Reasons why a server.conf or a token cannot be used. The text around them
// names the file and says more.
var (
	// ErrMissing means that the file does not exist.
	ErrMissing = errors.New("no such file")

	// ErrUnusable means that the file holds nothing that can be used: it is
	// empty, cut short, not text, or not a file at all.
	ErrUnusable = errors.New("unusable")
)

// maxConfBytes bounds a server.conf; conffile has the same limit.
const maxConfBytes = 1 << 20

// Limits on the intervals of server.conf. A node that published more often
// than every second would be a load test; less than daily says nothing.
const (
	minInterval = time.Second
	maxInterval = 24 * time.Hour

	defaultRegistrationInterval = 5 * time.Minute
	defaultAliveInterval        = 30 * time.Minute
)

// conf is what the agent takes from a server.conf. Keys that it does not know
// belong to other software and are left alone.
type conf struct {
	provision            *bool // nil: not said
	identity             wire.Identity
	brokers              []string
	srvDomain            string
	factsFile            string
	registrationFile     string
	registrationInterval time.Duration // 0: never
	aliveInterval        time.Duration
	logLevel             *slog.Level // nil: not said
}

// Keys of server.conf, ours first, then Choria's name for the same. The
// table in docs/operations.md names the same.
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

// words are what a server.conf says that must not go unheard, read so leniently that
// damage elsewhere in the file does not silence it: an operator's no, and the node's name.
type words struct {
	ProvisionWord
	names []string // that identity is set to, each once; of a file that cannot be used, too
}

// readConf reads a server.conf. The error wraps [ErrMissing] or [ErrUnusable];
// whatever it is, says is what the file says about provisioning and the node's name, as
// far as that can be made out.
func readConf(path string) (c *conf, says words, err error) {
	b, err := files.Read(path, maxConfBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, says, fmt.Errorf("%s: %w", path, ErrMissing)
	case err != nil:
		return nil, says, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	says = scanWords(b)
	c, err = parseConf(b)
	if err != nil {
		return nil, says, fmt.Errorf("%s: %w: %w", path, ErrUnusable, link.OneLine(err))
	}
	if says.names = nil; c.identity != "" {
		says.names = []string{string(c.identity)}
	}
	return c, says, nil
}

// A ProvisionWord is what a server.conf says about provisioning, in a file that cannot be
// used, too.
type ProvisionWord struct {
	Yes, No bool   // a line says so; both is a contradiction
	Other   string // a value that is neither
}

// scanWords looks at nothing but the lines that set provision and identity. The
// last line of a file that was cut short may hold half a name, which may be
// another node's.
func scanWords(b []byte) words {
	var w words
	for line := range strings.Lines(strings.TrimPrefix(string(b), "\ufeff")) { // some editors put that in front
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch yes, err := parseBool(value); {
		case key == keyIdentity[0] && value != "" && strings.HasSuffix(line, "\n") && !slices.Contains(w.names, value):
			w.names = append(w.names, value)
		case !slices.Contains(keyProvision, strings.ToLower(key)):
		case err != nil:
			w.Other = value
		case yes:
			w.Yes = true
		default:
			w.No = true
		}
	}
	return w
}

// parseBool reads the spellings that Choria's configuration has.
func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "1", "true", "yes", "y", "on":
		return true, nil
	case "0", "false", "no", "n", "off":
		return false, nil
	}
	return false, fmt.Errorf("is %.80q, want true or false", s)
}

// parseConf parses the text of a server.conf. One without any setting is an
// error: an empty file configures nothing. The error lists every mistake.
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
	r.read(keyRegInterval, func(v string) (err error) { c.registrationInterval, err = parseInterval(v, true); return err })
	r.read(keyAlive, func(v string) (err error) { c.aliveInterval, err = parseInterval(v, false); return err })
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

// splitList splits a comma separated list, trims its elements and drops empty
// ones.
func splitList(s string) []string {
	var list []string
	for e := range strings.SplitSeq(s, ",") {
		if e = strings.TrimSpace(e); e != "" {
			list = append(list, e)
		}
	}
	return list
}

// confReader collects the mistakes of a file.
type confReader struct {
	settings *conffile.Settings
	errs     []error
}

// read hands the value of a setting to set, if the file has one: under the first of its names.
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

// parseInterval reads seconds, as Choria writes them, or a span. If zero is set, 0 means never.
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

// parseLevel reads a level of ours or of Choria's.
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
