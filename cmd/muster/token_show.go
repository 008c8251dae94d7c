package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// tokenShowVerb is "muster token show".
type tokenShowVerb struct{ tokenVerb }

const tokenShowHelp = `Shows what a token is limited to, how many uses it has left, and who used it: which
machine, with which key, when and from where. "claimed" is a use that is spent
without a certificate to show for it, because the machine or the provisioner
died in between: that machine can still enroll at no further cost. If it never
will, 'muster token release' gives the use back.

  muster token show provisioning.jwt
  muster token show 0f1e2d3c4b5a69780f1e2d3c4b5a6978 --json`

func addTokenShow(parent *kingpin.CmdClause, all verbs) {
	v := &tokenShowVerb{}
	c := parent.Command("show", "Show a token and who used it.").HelpLong(tokenShowHelp)
	v.arg(c)
	v.add(c, all)
	all[c.FullCommand()] = v.run
}

func (v *tokenShowVerb) run(ctx context.Context) error {
	id, err := v.id(ctx)
	if err != nil {
		return err
	}
	var report httpapi.TokenReport
	if err := v.ask(ctx, http.MethodGet, "/v1/tokens/"+string(id), nil, &report); err != nil {
		return err
	}
	return v.print(&report, func() error { return writeTokenReport(&report) })
}

func writeTokenReport(r *httpapi.TokenReport) error {
	token := &httpapi.Token{TokenSummary: r.TokenSummary, Revoked: r.Revoked}
	var l cli.Labels
	l.Add("Token ID", string(r.ID))
	l.Add("State", tokenState(token, time.Now()))
	if x := r.Revoked; x != nil {
		l.Addf("Revoked", "%s by %s%s", instant(x.At), x.By, because(x.Why))
	}
	if r.SignerName != "" {
		l.Addf("Signed by", "%s, key SHA-256 %s", r.SignerName, short(string(r.Signer)))
		l.Add("Issued At", instant(r.IssuedAt))
		l.Add("Expires At", instant(r.ExpiresAt))
		l.Add("For", forText(token))
		l.Add("Uses", usesText(token))
		l.Add("First seen", instant(r.FirstSeen))
	}
	if _, err := l.WriteTo(os.Stdout); err != nil {
		return err
	}
	if len(r.UsedBy) == 0 {
		_, err := fmt.Fprintln(os.Stdout, "\nNobody has used it.")
		return err
	}
	fmt.Println()
	if err := writeUses(r.UsedBy); err != nil {
		return err
	}
	if r.More {
		_, err := fmt.Fprintf(os.Stdout, "... and more: only the first %d are listed\n", len(r.UsedBy))
		return err
	}
	return nil
}

// writeUses prints uses as a table.
func writeUses(uses []provisioner.TokenUse) error {
	var t cli.Table
	t.Add("NODE", "USE", "AT", "FROM", "KEY")
	for _, u := range uses {
		state := string(u.State)
		if u.State == provisioner.UseReleased {
			by := u.ReleasedBy
			if by == "" {
				by = "the refused attempt"
			}
			state = fmt.Sprintf("released %s by %s%s", instant(u.ReleasedAt), by, because(u.Why))
		}
		t.Add(string(u.Identity), state, instant(u.At), u.Source, short(u.Key))
	}
	_, err := t.WriteTo(os.Stdout)
	return err
}

// because appends a reason, if there is one.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}
