package cli

import (
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
)

// manPageTemplate takes the place of kingpin's, which leaves out what commands say
// at length, the flags of commands with commands below them, and the escapes that
// keep what is typed as it is typed.
const manPageTemplate = `{{define "ManFlags" -}}
{{range .Flags -}}
{{if not .Hidden -}}
.TP
\fB{{if .Short}}\-{{.Short|Char}}, {{end}}\-\-{{.Name|Roff}}{{if not .IsBoolFlag}}={{.FormatPlaceHolder|Roff}}{{end}}\fR
{{.HelpWithEnvar|Roff}}
{{end -}}
{{end -}}
{{end -}}

{{define "ManCommand" -}}
{{if not .Hidden -}}
.SS "{{.FullCommand|Roff}}{{range .Args}}{{if not .Hidden}} {{if not .Required}}[{{end}}<{{.Name|Roff}}>{{if .Value|IsCumulative}}...{{end}}{{if not .Required}}]{{end}}{{end}}{{end}}"
{{.Help|Roff}}
{{with .HelpLong -}}
.PP
.nf
{{.|Roff}}
.fi
{{end -}}
{{template "ManFlags" . -}}
{{range .Commands}}{{template "ManCommand" .}}{{end -}}
{{end -}}
{{end -}}

.TH {{.App.Name|Roff}} 1 "" "{{.App.Name|Roff}} {{.App.Version|Roff}}" "User Commands"
.SH NAME
{{.App.Name|Roff}} \- {{.App.Help|Roff}}
.SH SYNOPSIS
.B {{.App.Name|Roff}}
.RI [ flags ]\  command \ [ argument \ ...]
.SH OPTIONS
{{template "ManFlags" .App -}}
.SH COMMANDS
{{range .App.Commands}}{{template "ManCommand" .}}{{end -}}
.SH "EXIT STATUS"
0 if the command did what was asked, 1 if it failed, 2 if the command line makes no sense: nothing was done then.
Commands that say more with it say so.
.SH ENVIRONMENT
{{range Envars .App -}}
.TP
{{.Envar|Roff}}
As \-\-{{.Name|Roff}}: {{.Help|Roff}}
{{end -}}
.TP
NO_COLOR
If it is set, nothing is colored.
`

// roff writes text so that troff shows just that: what is typed can be copied.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, `"`, `\(dq`).Replace(s)
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") {
			lines[i] = `\&` + line // no request
		}
	}
	return strings.Join(lines, "\n")
}

// envars returns the flags that can be given in the environment, one for each
// variable, by its name.
func envars(app *kingpin.ApplicationModel) []*kingpin.FlagModel {
	var all []*kingpin.FlagModel
	var add func(*kingpin.FlagGroupModel, *kingpin.CmdGroupModel)
	add = func(flags *kingpin.FlagGroupModel, commands *kingpin.CmdGroupModel) {
		for _, f := range flags.Flags {
			if f.Envar != "" && !slices.ContainsFunc(all, func(other *kingpin.FlagModel) bool { return other.Envar == f.Envar }) {
				all = append(all, f)
			}
		}
		for _, c := range commands.Commands {
			add(c.FlagGroupModel, c.CmdGroupModel)
		}
	}
	add(app.FlagGroupModel, app.CmdGroupModel)
	slices.SortFunc(all, func(a, b *kingpin.FlagModel) int { return strings.Compare(a.Envar, b.Envar) })
	return all
}
