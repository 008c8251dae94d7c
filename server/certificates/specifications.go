package certificates

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/server/advice"
)

// mostPushed is the most that a pushed specification may set as a file's mode.
const mostPushed = 0o640

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
	for _, path := range append(s.Directories[:len(s.Directories):len(s.Directories)], s.Metrics) {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/") {
			return settings{}, fmt.Errorf("%s: path %q, want a clean absolute one", cfg.Settings, path)
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
	gone    bool
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
		if is && !wire.ValidCertificateName(name) {
			err = errors.Join(err, fmt.Errorf("%s: %.80q cannot be a certificate's name: use a-z, A-Z, 0-9, _, . and -",
				cfg.Specifications, e.Name()))
		} else if is {
			w := &want{source: "file"}
			file := filepath.Join(cfg.Specifications, e.Name())
			w.problem = loadSafe(file, &w.spec)
			if w.problem == nil || !reflect.DeepEqual(w.spec, wire.Specification{}) {
				w.problem = errors.Join(w.problem, conffile.Prefix(file, w.spec.Check()))
			}
			all[name] = w
		}
	}
	bounds, unbounded := cfg.settings()
	for name, spec := range pushed {
		if all[name] == nil {
			problem := errors.Join(unbounded, spec.Check(), bounds.check(&spec))
			all[name] = &want{source: "pushed", spec: spec, problem: problem}
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
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, advice.Errorf("change the policy, or what this node allows in certificates.yaml",
			"a pushed specification may not "+format, args...))
	}
	for _, f := range spec.Files.All() {
		if !slices.ContainsFunc(s.Directories, func(dir string) bool { return strings.HasPrefix(f.Path, dir+"/") }) {
			bad("write %s", f.Path)
		}
		for _, account := range []string{f.Owner, f.Group} {
			if account != "" && !slices.Contains(s.Owners, account) {
				bad("set owner or group %q", account)
			}
		}
		if mode, err := f.Perm(0); err == nil && mode&^mostPushed != 0 {
			bad("set mode %s, want at most 0%o", f.Mode, mostPushed)
		}
	}
	return errors.Join(errs...)
}

// compare refuses specifications that write one file, and those that are too many.
func compare(all map[string]*want) {
	users := make(map[string][]string) // of paths
	for i, name := range slices.Sorted(maps.Keys(all)) {
		w := all[name]
		if i >= wire.MaxCertificates {
			w.problem = errors.Join(w.problem, fmt.Errorf("%d specifications, limit %d", len(all),
				wire.MaxCertificates))
		}
		for _, f := range w.spec.Files.All() {
			users[f.Path] = append(users[f.Path], name)
		}
	}
	for path, names := range users {
		for _, name := range names {
			if len(names) > 1 {
				all[name].problem = errors.Join(all[name].problem, fmt.Errorf("%s is written by specifications %s: "+
					"change all but one", path, strings.Join(names, " and ")))
			}
		}
	}
}

// An action is run after files were saved. What comes over the network only names it.
type action struct {
	Unit      string        `yaml:"unit"`
	Verb      string        `yaml:"verb"` // for systemctl
	Program   string        `yaml:"program"`
	Arguments []string      `yaml:"arguments"`
	Timeout   conffile.Span `yaml:"timeout"`
}

var (
	unitVerbs = []string{"reload", "restart", "try-restart", "reload-or-restart", "try-reload-or-restart"}
	unitName  = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9:_.\\@-]*$`)
)

// action reads an action of the node.
func (cfg *Config) action(name string) (*action, error) {
	file := filepath.Join(cfg.Actions, name+".yaml")
	a := action{Timeout: conffile.Span(time.Minute)}
	err := loadSafe(file, &a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, advice.Errorf("write that file, or change the specification", "action %q: %w", name, err)
	}
	if err == nil {
		err = conffile.Prefix(file, a.check())
	}
	return &a, err
}

func (a *action) check() error {
	if d := time.Duration(a.Timeout); d < time.Second || d > time.Hour {
		return fmt.Errorf("timeout %v, want 1s to 1h", d)
	}
	switch {
	case (a.Unit == "") == (a.Program == ""):
		return errors.New("want either unit and verb, or program")
	case a.Program != "" && (!filepath.IsAbs(a.Program) || a.Verb != ""):
		return fmt.Errorf("program %.80q, want an absolute path, and no verb", a.Program)
	case a.Program != "":
		return inputfile.Safe(a.Program)
	case !unitName.MatchString(a.Unit) || !slices.Contains(unitVerbs, a.Verb) || len(a.Arguments) > 0:
		return fmt.Errorf("unit %.80q with verb %.80q, want the name of a unit, one of %s, and no arguments",
			a.Unit, a.Verb, strings.Join(unitVerbs, ", "))
	}
	return nil
}

// run runs an action. Only the name and paths of a specification reach it, by the environment.
func (a *action) run(ctx context.Context, name string, spec *wire.Specification) (*ActionResult, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.Timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, a.Program, a.Arguments...)
	if a.Unit != "" {
		cmd = exec.CommandContext(ctx, "systemctl", a.Verb, "--", a.Unit)
	}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"MUSTER_CERTIFICATE=" + name}
	for kind, f := range spec.Files.All() {
		cmd.Env = append(cmd.Env, "MUSTER_"+strings.ToUpper(kind)+"_FILE="+f.Path)
	}
	var last tail
	cmd.Stdout, cmd.Stderr = &last, &last
	cmd.WaitDelay = time.Second // for a descendant that left the group and holds the pipe
	ownGroup(cmd)
	err := cmd.Run()
	result := &ActionResult{Name: spec.Action, Exit: cmd.ProcessState.ExitCode(),
		Output: strings.ToValidUTF8(strings.TrimSpace(string(last)), "")}
	switch {
	case ctx.Err() != nil && result.Exit != 0:
		err = fmt.Errorf("action %q: not done within its time limit, %v", spec.Action, time.Duration(a.Timeout))
	case errors.Is(err, exec.ErrWaitDelay): // it has ended well
		err = nil
	case err != nil:
		err = fmt.Errorf("action %q: %w: %.200q", spec.Action, err, result.Output)
	}
	return result, err
}

// A tail keeps the last 4 KiB of what is written to it.
type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	*t = append(*t, b...)
	*t = (*t)[max(0, len(*t)-4<<10):]
	return len(b), nil
}
