package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

const signerHelp = `These verbs ask the provisioner that runs on this machine, or with --url one
elsewhere, and are in force on every provisioner of the installation within a second.
What they say of a key counts before what provisioner.yaml says of it.`

// addSigner adds "muster signer" with its verbs.
func addSigner(app *kingpin.Application, all verbs) {
	c := app.Command("signer", "Say whose tokens are good.").HelpLong(signerHelp)
	addSignerAdd(c, all)
	addSignerList(c, all)
	addSignerRemove(c, all)
}

// signerAddVerb is "muster signer add".
type signerAddVerb struct {
	operator
	file, name        string
	sites, identities []string
}

const signerAddHelp = `FILE holds the public half of the signer: a certificate or public key in PEM, or an
Ed25519 key in hex as Choria writes it. A signer that is there gets the new name
and limits; one that was removed is good again.

  muster signer add build.pem --name build --identity 'web*.example.net' --site berlin
  muster signer add prov/signer.pem`

func addSignerAdd(parent *kingpin.CmdClause, all verbs) {
	v := &signerAddVerb{}
	c := parent.Command("add", "Make the tokens of a signer good.").HelpLong(signerAddHelp)
	c.Arg("file", "Certificate or public key.").Required().StringVar(&v.file)
	c.Flag("name", "What logs and policies call the signer; a certificate's common name, or the file's name, if not given.").PlaceHolder("NAME").StringVar(&v.name)
	c.Flag("site", "Its tokens are good at this site only (repeatable).").PlaceHolder("NAME").StringsVar(&v.sites)
	c.Flag("identity", "Its tokens are good for these machines only, as 'web*.example.net' (repeatable).").PlaceHolder("GLOB").StringsVar(&v.identities)
	v.addChange(c, all)
	all.Check(c, v.check)
	all[c.FullCommand()] = v.run
}

// check returns all that is wrong with the flags.
func (v *signerAddVerb) check() error {
	var errs []error
	if len(v.name) > provisioner.MaxSignerNameBytes {
		errs = append(errs, fmt.Errorf("--name has %d bytes, want 1 to %d", len(v.name), provisioner.MaxSignerNameBytes))
	}
	for _, s := range v.sites {
		if _, err := jwt.ParseSite(s); err != nil {
			errs = append(errs, fmt.Errorf("--site: %w", err))
		}
	}
	for _, s := range v.identities {
		if _, err := wire.ParsePattern(s); err != nil {
			errs = append(errs, fmt.Errorf("--identity: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (v *signerAddVerb) run(ctx context.Context) error {
	b, err := readFile(ctx, v.file)
	if err != nil {
		return err
	}
	signer, err := jwt.ParseSigner(b)
	if err != nil {
		return fmt.Errorf("%s: %w", v.file, err)
	}
	if v.name == "" && signer.Name == "" {
		v.name = nameOfFile(v.file)
	}
	var added provisioner.SignerInfo
	err = v.ask(ctx, http.MethodPost, "/v1/signers", httpapi.AddSigner{
		NewSigner: provisioner.NewSigner{Public: b, Name: v.name, Sites: v.sites, Identities: v.identities}, Why: v.why,
	}, &added)
	if err != nil {
		return err
	}
	return v.printDone(&added, func() error {
		switch now, limits := time.Now(), signerLimits(&added); {
		case !added.NotAfter.IsZero() && now.After(added.NotAfter):
			v.say("signer %s is added, but its certificate ended %s: none of its tokens is good, add one that has not ended", added.Name, instant(added.NotAfter))
		case now.Before(added.NotBefore):
			v.say("tokens signed by %s are good for %s from %s on", added.Name, limits, instant(added.NotBefore))
		case !added.NotAfter.IsZero():
			v.say("tokens signed by %s are good for %s until %s, when its certificate ends", added.Name, limits, instant(added.NotAfter))
		default:
			v.say("tokens signed by %s are good for %s", added.Name, limits)
		}
		return nil
	})
}

// nameOfFile returns the name of a file without directory and ending.
func nameOfFile(path string) string {
	base := path[strings.LastIndexByte(path, '/')+1:]
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		base = base[:i]
	}
	return base
}

// signerLimits says what a signer's tokens are good for.
func signerLimits(s *provisioner.SignerInfo) string {
	var parts []string
	for _, p := range s.Identities {
		parts = append(parts, string(p))
	}
	for _, p := range s.Sites {
		parts = append(parts, "site "+string(p))
	}
	if len(parts) == 0 {
		return "any machine"
	}
	return strings.Join(parts, ", ")
}

const signerListHelp = `Lists whose tokens are good: the signers that provisioner.yaml names, and those that
were added or removed since, with the machines and sites that their tokens are good for.

  muster signer list
  muster signer list --json`

// signerListVerb is "muster signer list".
type signerListVerb struct{ operator }

func addSignerList(parent *kingpin.CmdClause, all verbs) {
	v := &signerListVerb{}
	c := parent.Command("list", "List signers with their limits, removed ones too.").HelpLong(signerListHelp)
	v.add(c, all)
	all[c.FullCommand()] = v.run
}

func (v *signerListVerb) run(ctx context.Context) error {
	var signers []provisioner.SignerInfo
	if err := v.ask(ctx, http.MethodGet, "/v1/signers", nil, &signers); err != nil {
		return err
	}
	return v.print(signers, func() error { return writeSigners(os.Stdout, signers) })
}

func writeSigners(w io.Writer, signers []provisioner.SignerInfo) error {
	var t cli.Table
	t.Add("SIGNER", "STATE", "KEY", "FROM", "FOR", "VALID UNTIL", "ID")
	for i := range signers {
		s := &signers[i]
		from := "provisioner.yaml"
		if s.Source == provisioner.SignerOfStore {
			from = "added by " + s.By
		}
		state, of := "good", signerLimits(s)
		switch now := time.Now(); {
		case s.Removed:
			state, from, of = "removed", "removed by "+s.By+because(s.Why), "nothing"
		case !s.NotAfter.IsZero() && now.After(s.NotAfter):
			state = "expired"
		case now.Before(s.NotBefore):
			state = "not yet valid"
		}
		t.Add(s.Name, state, cmp.Or(s.KeyType, "-"), from, of, instant(s.NotAfter), string(s.ID))
	}
	_, err := t.WriteTo(w)
	return err
}

// signerRemoveVerb is "muster signer remove".
type signerRemoveVerb struct {
	operator
	signer string
}

const signerRemoveHelp = `Makes every token of a signer worthless, on every provisioner within a second,
also if provisioner.yaml names the signer. Machines that enrolled with its tokens
stay as they are.

  muster signer remove build --why 'the key was on a public image'
  muster signer remove build.pem`

func addSignerRemove(parent *kingpin.CmdClause, all verbs) {
	v := &signerRemoveVerb{}
	c := parent.Command("remove", "Make the tokens of a signer worthless.").HelpLong(signerRemoveHelp)
	c.Arg("signer", "Its name or id, as 'muster signer list' prints them, or the file of its public half.").Required().StringVar(&v.signer)
	v.addChange(c, all)
	all[c.FullCommand()] = v.run
}

func (v *signerRemoveVerb) run(ctx context.Context) error {
	id, err := v.id(ctx)
	if err != nil {
		return err
	}
	var removed httpapi.Removed
	if err := v.ask(ctx, http.MethodPost, "/v1/signers/"+string(id)+"/remove", httpapi.Reason{Why: v.why}, &removed); err != nil {
		return err
	}
	return v.printDone(&removed, func() error {
		if removed.Left == 0 {
			v.say("signer %s is removed; none is left, so nobody enrolls until one is added", v.signer)
			return nil
		}
		v.say("signer %s is removed; %s left", v.signer, counted(removed.Left, "signer is", "signers are"))
		return nil
	})
}

// id returns the id of the signer that was named.
func (v *signerRemoveVerb) id(ctx context.Context) (jwt.SignerID, error) {
	if id := jwt.SignerID(v.signer); provisioner.CheckSignerID(id) == nil {
		return id, nil
	}
	var signers []provisioner.SignerInfo
	if err := v.ask(ctx, http.MethodGet, "/v1/signers", nil, &signers); err != nil {
		return "", err
	}
	named := slices.DeleteFunc(signers, func(s provisioner.SignerInfo) bool { return s.Name != v.signer })
	// A name is free once its signer is removed: whoever has it by now is meant.
	good := slices.DeleteFunc(slices.Clone(named), func(s provisioner.SignerInfo) bool { return s.Removed })
	switch {
	case len(good) == 1:
		return good[0].ID, nil
	case len(good) > 1: // added at the same time, or in a provisioner.yaml as well
		var ids []string
		for i := range good {
			ids = append(ids, string(good[i].ID))
		}
		return "", fmt.Errorf("%d signers have the name %q, say which by its id: %s", len(good), v.signer, strings.Join(ids, ", "))
	case len(named) > 0: // all are removed
		return named[0].ID, nil
	}
	b, err := readFile(ctx, v.signer)
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%q is neither the name or id of a signer nor the file of one: see `muster signer list`", v.signer)
	}
	signer, err := jwt.ParseSigner(b)
	if err != nil {
		return "", fmt.Errorf("%s: %w", v.signer, err)
	}
	return jwt.Fingerprint(signer.Key)
}
