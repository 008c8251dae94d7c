package certificates

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/advice"
)

// settings are the node's own bounds of pushed specifications.
type settings struct {
	Directories []string `yaml:"directories"` // below which they may write
	Owners      []string `yaml:"owners"`      // users and groups that files may have
	Metrics     string   `yaml:"metrics"`     // file for node_exporter's textfile collector; "": none
}

// tlsDir is the only directory of muster's own that specifications may write to.
func (cfg *Config) tlsDir() string { return filepath.Join(filepath.Dir(cfg.Settings), "tls") }

func (cfg *Config) settings() (settings, error) {
	s := settings{Directories: []string{cfg.tlsDir()}, Owners: []string{"root"}}
	if err := loadSafe(cfg.Settings, &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return settings{}, err
	}
	for _, dir := range append(s.Directories, s.Metrics) {
		if dir != "" && (!filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/") {
			return settings{}, fmt.Errorf("%s: path %q, want an absolute one without . and ..", cfg.Settings, dir)
		}
	}
	return s, nil
}

// loadSafe reads a file that no other user can change.
func loadSafe(path string, dst any) error {
	if err := inputfile.Safe(path); err != nil {
		return err
	}
	return conffile.LoadYAML(path, inputfile.Configured, dst)
}

// A want is what a specification says, or why it is refused.
type want struct {
	source  string
	spec    wire.Specification
	problem error
}

// wants reads all specifications. A file of the node goes before a pushed one of its name. known is false if the
// directory cannot be read: then no file counts as removed.
func (cfg *Config) wants(pushed map[string]wire.Specification) (all map[string]*want, known bool, err error) {
	all = make(map[string]*want)
	entries, err := os.ReadDir(cfg.Specifications)
	known = err == nil
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".yaml")
		if !is || strings.HasPrefix(name, ".") {
			continue
		}
		if !wire.ValidCertificateName(name) {
			err = errors.Join(err, fmt.Errorf("%s: %.80q cannot be a certificate's name: use a-z, A-Z, 0-9, _, . and -",
				cfg.Specifications, name))
			continue
		}
		w := &want{source: "file"}
		file := filepath.Join(cfg.Specifications, e.Name())
		if w.problem = loadSafe(file, &w.spec); w.problem == nil || !reflect.DeepEqual(w.spec, wire.Specification{}) {
			w.problem = errors.Join(w.problem, conffile.Prefix(file, w.spec.Check()))
		}
		all[name] = w
	}
	bounds, unbounded := cfg.settings()
	for name, spec := range pushed {
		if all[name] == nil {
			all[name] = &want{source: "pushed", spec: spec,
				problem: errors.Join(unbounded, spec.Check(), bounds.check(&spec))}
		}
	}
	for _, w := range all {
		if w.problem == nil && w.spec.Action != "" {
			_, w.problem = cfg.action(w.spec.Action)
		}
	}
	compare(all)
	return all, known, errors.Join(err, unbounded)
}

// check returns what a pushed specification may not have.
func (s *settings) check(spec *wire.Specification) error {
	const remedy = "change the policy, or what this node allows in /etc/muster/certificates.yaml"
	var errs []error
	for kind, f := range spec.Files.All() {
		below := func(dir string) bool { return strings.HasPrefix(f.Path, dir+"/") }
		if !slices.ContainsFunc(s.Directories, below) {
			errs = append(errs, advice.Errorf(remedy, "%s: a pushed specification may not write %s", kind, f.Path))
		}
		for _, account := range []string{f.Owner, f.Group} {
			if account != "" && !slices.Contains(s.Owners, account) {
				errs = append(errs, advice.Errorf(remedy, "%s: a pushed specification may not set owner or group %q",
					kind, account))
			}
		}
		if mode, err := f.Perm(0); err == nil && mode&^0o640 != 0 {
			errs = append(errs, advice.Errorf(remedy, "%s: mode %s of a pushed specification, want at most 0640", kind,
				f.Mode))
		}
	}
	return errors.Join(errs...)
}

// compare refuses specifications that write one file, and those that are too many.
func compare(all map[string]*want) {
	users := make(map[string][]string)
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if i >= wire.MaxCertificates {
			all[name].problem = errors.Join(all[name].problem,
				fmt.Errorf("%d specifications, limit %d", len(all), wire.MaxCertificates))
		}
		for _, f := range all[name].spec.Files.All() {
			users[f.Path] = append(users[f.Path], name)
		}
	}
	for path, names := range users {
		for _, name := range names {
			if others := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == name }); len(others) > 0 {
				all[name].problem = errors.Join(all[name].problem,
					fmt.Errorf("%s is also written by specification %s: give one of them another path", path,
						strings.Join(others, ", ")))
			}
		}
	}
}
