package servercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"muster/internal/cli"
	"muster/server"
)

// ErrUnhealthy means that a check failed; the output already says which.
var ErrUnhealthy = errors.New("not healthy")

type doctorVerb struct {
	files
	output cli.Output
	out    io.Writer
}

const doctorHelp = `Checks identity, mode, token, facts, files, certificates and DNS, and connects
to the brokers, with the certificate or else with the token. It does not enroll
and leaves no files. Run it as the agent's user, also while the agent runs.
Each check is a line: ok, warn or fail, what was checked, the result, and what
to do.

  %[1]s
  %[1]s --token-file provisioning.jwt --ssl-dir web1 \
    --config web1/server.conf

Exits with 0 if no check fails, 1 if one does, 2 if the command line is wrong.`

// AddDoctor adds the verb doctor, which checks this node.
func AddDoctor(to Parent, all Verbs) {
	v := &doctorVerb{out: os.Stdout}
	c := to.Command("doctor", "Check what the agent needs, and show what to do.")
	c.HelpLong(fmt.Sprintf(doctorHelp, called(to, "doctor")))
	v.add(c)
	v.output.AddFlags(c)
	all[c.FullCommand()] = v.run
}

func (v *doctorVerb) run(ctx context.Context) error {
	v.cfg.Version = cli.Version()
	findings, err := server.Doctor(ctx, v.cfg)
	if err != nil {
		return err
	}
	err = writeFindings(v.out, &v.output, findings)
	if failed := count(findings, server.StatusFail); err == nil && failed > 0 {
		err = fmt.Errorf("%w: %d of %d checks failed", ErrUnhealthy, failed, len(findings))
	}
	return err
}

func count(findings []server.Finding, status server.Status) (n int) {
	for _, f := range findings {
		if f.Status == status {
			n++
		}
	}
	return n
}

func writeFindings(w io.Writer, o *cli.Output, findings []server.Finding) error {
	if o.JSON() {
		return cli.WriteJSON(w, map[string][]server.Finding{"findings": findings})
	}
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&b, "%-4s  %-12s  %s", f.Status, f.What, cli.Printable(f.Detail))
		if f.Remedy != "" {
			fmt.Fprintf(&b, "  -> %s", cli.Printable(f.Remedy))
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
