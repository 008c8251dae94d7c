// Package signer implements "muster signer": the keys whose tokens are accepted.
package signer

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/inputfile"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/httpapi"
)

const help = `These verbs ask the provisioner on this machine, or the one of --url. Changes are in
force on every provisioner within a second, and override provisioner.yaml.`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("signer", "Choose the keys whose tokens are accepted.").HelpLong(help)
	addAdd(c, all)
	addList(c, all)
	addRemove(c, all)
}

const addHelp = `FILE has the public half of the signer: a certificate or public key in PEM, or an
Ed25519 key in hex as Choria writes it. A known signer gets the new name and limits;
a removed one is accepted again. --site and --identity limit its tokens to sites and
nodes.

  muster signer add build.pem --name build --identity 'web*.example.net' --site ams1
  muster signer add prov/signer.pem`

func addAdd(parent *kingpin.CmdClause, all cli.Verbs) {
	var file string
	var n trust.NewSigner
	c := parent.Command("add", "Accept the tokens of a signer.").HelpLong(addHelp)
	c.Arg("file", "Certificate or public key.").Required().StringVar(&file)
	cli.Parse(cli.Flag(c, "name"), &n.Name, checkName)
	cli.ParseEach(cli.Flag(c, "site"), &n.Sites, cli.Parsed(jwt.ParseSite))
	cli.ParseEach(cli.Flag(c, "identity"), &n.Identities, cli.Parsed(wire.ParseNamePattern))
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (*trust.SignerInfo, error) {
		signer, err := inputfile.Parse(file, inputfile.Typed, func(b []byte) (jwt.Signer, error) {
			n.Public = b
			return jwt.ParseSigner(b)
		})
		if err != nil {
			return nil, err
		}
		if n.Name == "" && signer.Name == "" {
			base := filepath.Base(file)
			n.Name = cmp.Or(strings.TrimSuffix(base, filepath.Ext(base)), base)
		}
		return verb.Post[*trust.SignerInfo](ctx, o, "/v1/signers", httpapi.AddSigner{NewSigner: n, Why: o.Why})
	}, func(o *verb.Operator, s *trust.SignerInfo) fmt.Stringer {
		switch now, limits := time.Now(), limitsOf(s); {
		case !s.NotAfter.IsZero() && now.After(s.NotAfter):
			o.Say("signer %s is added, but its certificate expired at %s: its tokens are refused; add a valid one",
				s.Name, verb.Instant(s.NotAfter))
		case now.Before(s.NotBefore):
			o.Say("tokens signed by %s are valid for %s from %s on", s.Name, limits, verb.Instant(s.NotBefore))
		case !s.NotAfter.IsZero():
			o.Say("tokens signed by %s are valid for %s until %s, when its certificate expires", s.Name, limits,
				verb.Instant(s.NotAfter))
		default:
			o.Say("tokens signed by %s are valid for %s", s.Name, limits)
		}
		return nil
	})
}

func checkName(name string) (string, error) {
	if len(name) > trust.MaxSignerNameBytes {
		return "", fmt.Errorf("--name has %d bytes, want 1 to %d", len(name), trust.MaxSignerNameBytes)
	}
	return name, nil
}

// limitsOf returns the nodes and sites of a signer's tokens as text.
func limitsOf(s *trust.SignerInfo) string {
	var parts []string
	for _, p := range s.Identities {
		parts = append(parts, string(p))
	}
	for _, p := range s.Sites {
		parts = append(parts, "site "+string(p))
	}
	return cmp.Or(strings.Join(parts, ", "), "any node")
}

const listHelp = `Lists signers with the nodes and sites that their tokens are limited to: those of
provisioner.yaml, and those that were added or removed since.

  muster signer list
  muster signer list -o json`

func addList(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("list", "List signers with their limits, removed ones too.").HelpLong(listHelp)
	verb.ListOf(c, all, "/v1/signers", "no signers are known: no node can enroll", columns)
}

var columns = []cli.Column[trust.SignerInfo]{
	{Title: "SIGNER", Value: func(s trust.SignerInfo) any { return s.Name }},
	{Title: "STATE", Value: func(s trust.SignerInfo) any { return stateOf(&s, time.Now()) }},
	{Title: "KEY", Value: func(s trust.SignerInfo) any { return s.KeyType }},
	{Title: "FOR", Value: func(s trust.SignerInfo) any { return limitsOf(&s) }},
	{Title: "VALID UNTIL", Value: func(s trust.SignerInfo) any { return s.NotAfter }},
	{Title: "SOURCE", Value: func(s trust.SignerInfo) any { return sourceOf(&s) }},
	{Title: "ID", Value: func(s trust.SignerInfo) any { return s.ID }},
	{Title: "VALID FROM", Wide: true, Value: func(s trust.SignerInfo) any { return s.NotBefore }},
}

func stateOf(s *trust.SignerInfo, now time.Time) string {
	switch {
	case s.Removed:
		return "removed"
	case !s.NotAfter.IsZero() && now.After(s.NotAfter):
		return "expired"
	case now.Before(s.NotBefore):
		return "not yet valid"
	}
	return "good"
}

// sourceOf returns the origin of a signer, or why it was removed.
func sourceOf(s *trust.SignerInfo) string {
	switch {
	case s.Removed:
		return "removed by " + s.By + verb.Because(s.Why)
	case s.Source == trust.SignerOfStore:
		return "added by " + s.By
	}
	return "provisioner.yaml"
}
