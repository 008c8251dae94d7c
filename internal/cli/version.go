package cli

import "runtime/debug"

// buildVersion is set by the linker only:
//
//	go build -ldflags "-X muster/internal/cli.buildVersion=v1.2.3" ./cmd/...
var buildVersion string

// Version returns the version of the program: the one it was built with, else the module's, else the commit, else
// "devel".
func Version() string {
	if buildVersion != "" {
		return buildVersion
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = "-" + s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "-modified"
		}
	}
	return "devel" + revision + modified
}
