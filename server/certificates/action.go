package certificates

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/span"
	"muster/internal/wire"
	"muster/server/advice"
)

// searchPath is PATH of actions, and where systemctl is.
const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

const maxOutput = 4 << 10

// An action is run after files were saved. What comes over the network only names it.
type action struct {
	Unit      string        `yaml:"unit"`
	Verb      string        `yaml:"verb"`
	Program   string        `yaml:"program"`
	Arguments []string      `yaml:"arguments"`
	Timeout   conffile.Span `yaml:"timeout"`
}

var unitVerbs = []string{"reload", "restart", "try-restart", "reload-or-restart", "try-reload-or-restart"}

var unitName = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9:_.\\@-]*$`)

// action reads an action of the node.
func (cfg *Config) action(name string) (*action, error) {
	file := filepath.Join(cfg.Actions, name+".yaml")
	if !wire.ValidCertificateName(name) {
		return nil, fmt.Errorf("action %.80q is not a valid name", name)
	}
	a := action{Timeout: conffile.Span(time.Minute)}
	err := loadSafe(file, &a)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, advice.Errorf("write that file, or change the specification", "action %q is not defined: %s is missing",
			name, file)
	}
	if err != nil {
		return nil, err
	}
	return &a, conffile.Prefix(file, a.check())
}

func (a *action) check() error {
	var errs []error
	switch {
	case (a.Unit == "") == (a.Program == ""):
		errs = append(errs, errors.New("want either unit and verb, or program"))
	case a.Unit != "" && (!unitName.MatchString(a.Unit) || !slices.Contains(unitVerbs, a.Verb) || a.Arguments != nil):
		errs = append(errs, fmt.Errorf("unit %.80q with verb %.80q, want the name of a unit, no arguments, and one of %s",
			a.Unit, a.Verb, strings.Join(unitVerbs, ", ")))
	case a.Program != "" && (!filepath.IsAbs(a.Program) || a.Verb != ""):
		errs = append(errs, fmt.Errorf("program %.80q, want an absolute path, and no verb", a.Program))
	case a.Program != "":
		errs = append(errs, inputfile.Safe(a.Program))
	}
	if d := time.Duration(a.Timeout); d < time.Second || d > time.Hour {
		errs = append(errs, fmt.Errorf("timeout %v, want 1s to 1h", d))
	}
	return errors.Join(errs...)
}

// run runs an action. Nothing of a specification but its name and paths reaches it, by the environment.
func (a *action) run(ctx context.Context, name string, spec *wire.Specification) (*ActionResult, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.Timeout))
	defer cancel()
	result := &ActionResult{Name: spec.Action, Exit: -1}
	var last tail
	cmd := exec.CommandContext(ctx, a.Program, a.Arguments...)
	if a.Unit != "" {
		cmd = exec.CommandContext(ctx, systemctl(), a.Verb, "--", a.Unit)
	}
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + searchPath, "MUSTER_CERTIFICATE=" + name}
	for kind, f := range spec.Files.All() {
		cmd.Env = append(cmd.Env, "MUSTER_"+strings.ToUpper(kind)+"_FILE="+f.Path)
	}
	cmd.Stdout, cmd.Stderr = &last, &last
	cmd.WaitDelay = time.Second // for a descendant that left the group and holds the pipe
	ownGroup(cmd)
	err := cmd.Run()
	if cmd.ProcessState != nil {
		result.Exit = cmd.ProcessState.ExitCode()
	}
	result.Output = strings.ToValidUTF8(strings.TrimSpace(string(last)), "")
	switch {
	case ctx.Err() != nil && result.Exit != 0:
		return result, fmt.Errorf("action %q: not done within its time limit of %s", spec.Action,
			span.Format(time.Duration(a.Timeout)))
	case err != nil && result.Exit != 0:
		return result, fmt.Errorf("action %q: %w: %.200q", spec.Action, err, result.Output)
	}
	return result, nil
}

func systemctl() string {
	for _, dir := range filepath.SplitList(searchPath) {
		if path, err := exec.LookPath(filepath.Join(dir, "systemctl")); err == nil {
			return path
		}
	}
	return "/usr/bin/systemctl"
}

// A tail keeps the end of what is written to it.
type tail []byte

func (t *tail) Write(b []byte) (int, error) {
	*t = append(*t, b...)
	*t = (*t)[max(0, len(*t)-maxOutput):]
	return len(b), nil
}
