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

// mostPushed is the highest mode of pushed files.
const mostPushed = 0o640

// settings bound pushed specifications.
type settings struct {
	Directories []string `yaml:"directories"` // below which they may write
	Owners      []string `yaml:"owners"`      // users and groups that files may have
	Metrics     string   `yaml:"metrics"`     // file for node_exporter's textfile collector; "": none
}

func (cfg *Config) settings() (settings, error) {
	file := cfg.in("certificates.yaml")
	s := settings{Directories: []string{cfg.in("tls")}, Owners: []string{"root"}}
	if err := loadSafe(file, &s); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return settings{}, err
	}
	for _, path := range append(s.Directories[:len(s.Directories):len(s.Directories)], s.Metrics) {
		if path != "" && (!filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/") {
			return settings{}, fmt.Errorf("%s: path %q, want a clean absolute one", file, path)
		}
	}
	return s, nil
}

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

// wants reads all specifications. What cannot be read counts as unchanged.
func (cfg *Config) wants(states map[string]*state) (all map[string]*want, err error) {
	all = make(map[string]*want)
	entries, err := os.ReadDir(cfg.in("certificates.d"))
	read := map[string]bool{"file": err == nil}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".yaml")
		if is && !wire.ValidCertificateName(name) {
			err = errors.Join(err, fmt.Errorf("%s: %.80q cannot be a certificate's name: use a-z, A-Z, 0-9, _, . and -",
				cfg.in("certificates.d"), e.Name()))
		} else if is {
			all[name] = &want{source: "file"}
			all[name].problem = loadSafe(cfg.specification(name), &all[name].spec)
		}
	}
	b, failed := inputfile.Read(cfg.Pushed, inputfile.Configured, wire.MaxReplyBytes)
	var pushed map[string]wire.Specification
	if failed == nil {
		failed = wire.DecodeStrict(b, &pushed)
	}
	read["pushed"] = failed == nil
	if !errors.Is(failed, fs.ErrNotExist) {
		err = errors.Join(err, failed)
	}
	for name, spec := range pushed {
		if all[name] == nil {
			all[name] = &want{source: "pushed", spec: spec}
		}
	}
	for name, st := range states {
		if all[name] == nil && read[st.Source] {
			all[name] = &want{source: st.Source, gone: true}
		} else if all[name] == nil {
			all[name] = &want{source: st.Source, spec: st.Specification}
		}
	}
	return all, errors.Join(err, cfg.judge(all))
}

func (cfg *Config) specification(name string) string {
	return cfg.in("certificates.d/" + name + ".yaml")
}

// judge finds the problems of specifications, and returns one that is about all pushed ones.
func (cfg *Config) judge(all map[string]*want) error {
	bounds, unbounded := cfg.settings()
	users, count := make(map[string][]string), 0 // of paths
	for _, name := range slices.Sorted(maps.Keys(all)) {
		w := all[name]
		if w.gone {
			continue
		}
		if failed := w.spec.Check(); w.source == "pushed" {
			w.problem = errors.Join(unbounded, failed, bounds.check(&w.spec))
		} else if w.problem == nil || !reflect.DeepEqual(w.spec, wire.Specification{}) { // else it was not read
			w.problem = errors.Join(w.problem, conffile.Prefix(cfg.specification(name), failed))
		}
		if w.problem == nil && w.spec.Action != "" {
			_, w.problem = cfg.action(w.spec.Action)
		}
		if count++; count > wire.MaxCertificates {
			w.problem = errors.Join(w.problem, fmt.Errorf("%d specifications, limit %d", count, wire.MaxCertificates))
		}
		for _, f := range w.spec.Files {
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
	return unbounded
}

func (s *settings) check(spec *wire.Specification) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, advice.Errorf("change the policy, or what this node allows in certificates.yaml",
			"a pushed specification may not "+format, args...))
	}
	for _, f := range spec.Files {
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

// longestAction bounds the time that other certificates wait for an action.
const longestAction = 5 * time.Minute

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

func (cfg *Config) action(name string) (*action, error) {
	file := cfg.in("actions.d/" + name + ".yaml")
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
	if d := time.Duration(a.Timeout); d < time.Second || d > longestAction {
		return fmt.Errorf("timeout %v, want 1s to 5m", d)
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

// run passes only the name and paths of a specification, by the environment.
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
	for kind, f := range spec.Files {
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

type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	*t = append(*t, b...)
	*t = (*t)[max(0, len(*t)-4<<10):]
	return len(b), nil
}
