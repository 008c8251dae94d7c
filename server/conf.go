package server

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/serverconf"
	"muster/internal/wire"
	"muster/jwt"
	"muster/server/link"
)

var (
	// ErrMissing means that the file does not exist.
	ErrMissing = errors.New("no such file")

	// ErrUnusable means that the file is empty, truncated, malformed, or not a regular file.
	ErrUnusable = errors.New("unusable")
)

const remedySettings = "correct the lines; until then their settings have their defaults"

// lenientConf holds the settings that apply even if the rest of server.conf is damaged.
type lenientConf struct {
	ProvisionSetting
	identities []string
}

// readConf reads a server.conf. The error wraps [ErrMissing] or [ErrUnusable]; says holds all that could be read.
func readConf(path string) (c *serverconf.Conf, says lenientConf, err error) {
	b, err := inputfile.ReadText(path, inputfile.Configured)
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
	if c.Identity != "" && len(says.identities) < 2 {
		says.identities = []string{string(c.Identity)}
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
	for line := range strings.Lines(string(b)) {
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue
		}
		key, value = strings.TrimSpace(key), serverconf.WithoutComment(strings.TrimSpace(value))
		switch yes, err := serverconf.ParseBool(value); {
		case key == serverconf.KeyIdentity[0] && value != "" && strings.HasSuffix(line, "\n") &&
			!slices.Contains(w.identities, wire.FoldName(value)):
			w.identities = append(w.identities, wire.FoldName(value))
		case !slices.Contains(serverconf.KeyProvision, strings.ToLower(key)):
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

// parseConf puts what the agent ignores into [serverconf.Conf].Faults. Only a damaged file is an error: a slip of an
// operator takes no machine out of its fleet.
func parseConf(b []byte) (*serverconf.Conf, error) {
	settings, skipped, err := conffile.ReadSettings(b)
	if err != nil {
		return nil, err
	}
	if len(settings) == 0 {
		return nil, cmp.Or(skipped, errors.New("no settings in it"))
	}
	c := serverconf.Parse(settings)
	faults := []error{skipped, c.Faults}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		faults = append(faults, serverconf.Misspelled(key))
	}
	c.Faults = errors.Join(faults...)
	return c, nil
}

// A Setting is one line of [ReadSettings].
type Setting struct {
	Name  string `json:"name"` // as in Choria's `buildinfo`
	Value any    `json:"value"`
}

// ReadSettings returns how token and server.conf provision this machine, in the order of Choria's `buildinfo`. problem
// is a missing or unusable token; err is about cfg.
func ReadSettings(cfg Config) (list []Setting, problem, err error) {
	cfg, err = cfg.complete()
	if err != nil {
		return nil, nil, err
	}
	paths := (&state{cfg: cfg}).tokenFiles()
	t, problem := readToken(paths)
	switch {
	case problem == nil:
		problem = t.usable()
	case errors.Is(problem, ErrMissing):
		problem = fmt.Errorf("no token: %w", problem)
	}
	t = cmp.Or(t, &token{Unverified: &jwt.Unverified{}, file: paths[0]})
	byDefault := t.Default
	_, says, _ := readConf(cfg.ConfFile) // provision applies even if the rest of the file cannot be used
	if says.Yes != says.No {
		byDefault = says.Yes
	}
	secret := "not set" // never show the shared secret of Choria's remote commands
	if t.Token != "" {
		secret = "set"
	}
	list = []Setting{
		{"Provisioning Default", byDefault},
		{"Provisioning TLS", t.Secure},
		{"Provisioning Target Resolver", "Default"},
		{"Default Provisioning Agent", true},
		{"Provisioning Token", secret},
	}
	if t.SRVDomain != "" {
		list = append(list, Setting{"Provisioning SRV Domain", t.SRVDomain})
	}
	if urls := t.URLs(); len(urls) > 0 {
		list = append(list, Setting{"Provisioning Brokers", strings.Join(urls, ", ")})
	}
	return append(list, Setting{"Provisioning JWT file", t.file}), link.OneLine(problem), nil
}
