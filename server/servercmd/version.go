package servercmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"

	"muster/internal/cli"
	"muster/server"
)

// BuildInfo is what `version -o json` prints.
type BuildInfo struct {
	Version      string           `json:"version"`
	Go           string           `json:"go"`
	Platform     string           `json:"platform"` // GOOS/GOARCH
	Provisioning []server.Setting `json:"provisioning"`
	Problem      string           `json:"problem,omitempty"` // why the token is missing or unusable
}

type versionVerb struct {
	cfg    server.Config
	output cli.Output
	out    io.Writer
}

const versionHelp = `Also shows how the agent on this machine would provision it. The command reads the
token, if there is one, and the configuration. It changes nothing and asks no other
program.

  %[1]s
  %[1]s --token-file provisioning.jwt -o json`

// AddVersion adds the verb version, which is also called buildinfo, as in Choria.
func AddVersion(to Parent, all Verbs) {
	v := &versionVerb{out: os.Stdout}
	c := to.Command("version", "Show the version and the provisioning settings.").Alias("buildinfo")
	c.HelpLong(fmt.Sprintf(versionHelp, called(to, "version")))
	cli.Flag(c, "token-file").StringVar(&v.cfg.TokenFile)
	cli.Flag(c, "config").Default(server.DefaultConfFile).StringVar(&v.cfg.ConfFile)
	v.output.AddFlags(c)
	all[c.FullCommand()] = v.run
}

func (v *versionVerb) run(context.Context) error {
	settings, problem, err := server.ReadSettings(v.cfg)
	if err != nil {
		return err
	}
	info := BuildInfo{
		Version:      cli.Version(),
		Go:           runtime.Version(),
		Platform:     runtime.GOOS + "/" + runtime.GOARCH,
		Provisioning: settings,
	}
	if problem != nil {
		info.Problem = problem.Error()
	}
	if v.output.JSON() {
		err = cli.WriteJSON(v.out, info)
	} else {
		err = info.print(v.out)
	}
	if err == nil && v.cfg.TokenFile != "" {
		err = problem // --token-file asked for this token
	}
	return err
}

func (info *BuildInfo) print(w io.Writer) error {
	var build, provisioning cli.Labels
	build.Add("Version", info.Version)
	build.Add("Go", info.Go)
	build.Add("Platform", info.Platform)
	for _, s := range info.Provisioning {
		provisioning.Addf(s.Name, "%v", s.Value)
	}
	if info.Problem != "" {
		provisioning.Add("Problem", info.Problem)
	}
	_, err := fmt.Fprintf(w, "Build:\n%s\nServer Settings:\n%s", &build, &provisioning)
	return err
}
