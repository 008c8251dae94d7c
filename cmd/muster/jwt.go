package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// jwtVerb is "muster jwt" and, with the same arguments, Choria's spelling
// "muster tool jwt". Its flags belong to all its verbs, so that they may stand
// anywhere on the command line; each verb refuses those that it has no use for.
type jwtVerb struct {
	name string           // "muster jwt" or "muster tool jwt"
	set  map[string]*bool // by flag: whether it is on the command line
	now  func() time.Time

	file, key string // arguments; for keys the private and the public file

	// sign
	insecure, byDefault, protocolV2, upgrade, vault bool
	token, tokenFile, srv                           string
	urls, identities                                []string
	registration, facts, username, password         string
	org, extensions, validity, notBefore, site, ca  string
	seal                                            string
	uses                                            int

	// view
	json, showSecret bool

	// keys
	keyType string
	bits    int
	encrypt bool

	// several
	passphraseFile string
	force          bool
}

// commander is what has commands: kingpin's application and its commands.
type commander interface {
	Command(name, help string) *kingpin.CmdClause
}

// addJWT adds "muster jwt" and "muster tool jwt".
func addJWT(app *kingpin.Application, all verbs) {
	addJWTTo(app, program+" jwt", all)
	tool := app.Command("tool", "Choria's spelling of some verbs.").
		HelpLong("Who is used to 'choria tool jwt' writes 'muster tool jwt': it is 'muster jwt'.")
	addJWTTo(tool, program+" tool jwt", all)
}

// jwtHelp is formatted with the name of the command.
const jwtHelp = `    %[1]s FILE [KEY]           view, verified if there is a public key
    %[1]s FILE KEY --urls ...  sign with a private key
    %[1]s keys PRIVATE PUBLIC  make a pair of keys

  %[1]s provisioning.jwt signer-key.pem --insecure --token-file secret \
    --urls localhost:4222 --default
  %[1]s provisioning.jwt signer.pem

FILE is viewed if it exists and no flag of signing is given. The verbs sign and
view say it outright. Flags may stand anywhere. Each is for the verbs that its
heading, or the start of its help, names; the others refuse it.

A file whose name is a verb (sign, provisioning, prov, p, view, show, v, s or
keys) is written with its directory, such as ./p.`

// The helps of the verbs, each formatted with the name of the command.
const (
	jwtSignHelp = `Writes a new token, which says where the brokers are, holds the secret that machines
share with the provisioner, and may be limited: to uses, names, a site, a time.

  %[1]s sign provisioning.jwt signer-key.pem --insecure --token-file secret \
    --urls broker.example.net:4222 --default --ca ca/root.pem --seal seal.pub
  %[1]s sign web.jwt signer-key.pem --token-file secret --srv example.net \
    --uses 20 --identity 'web*.example.net' --validity 30d`
	jwtViewHelp = `Prints what a token says, without its secrets. With a key, one that does not verify is
not printed at all; one that is genuine and not good now is, and that is a failure.

  %[1]s view provisioning.jwt
  %[1]s view provisioning.jwt signer.pem --json

Exits with 0 if the token is printed, and good where a key is given, 1 if not, 2 if the
command line makes no sense.`
	jwtKeysHelp = `Writes a private key, readable by its owner only, and its public half, which is what
provisioner.yaml's signers or 'muster signer add' take: both, or neither.

  %[1]s keys signer-key.pem signer.pem
  %[1]s keys signer-key.pem signer.pem --type rsa --bits 3072 --encrypt`
)

func addJWTTo(parent commander, name string, all verbs) {
	v := &jwtVerb{name: name, set: make(map[string]*bool), now: time.Now}
	c := parent.Command("jwt", "Sign and view provisioning tokens.").HelpLong(fmt.Sprintf(jwtHelp, name))
	v.addSignFlags(c)
	v.addViewFlags(c)
	v.addKeysFlags(c)
	v.flag(c, "passphrase-file", "Sign, keys: file with the passphrase of the private key; else MUSTER_PASSPHRASE or the terminal.").
		PlaceHolder("FILE").StringVar(&v.passphraseFile)
	v.flag(c, "force", "Sign, keys: replace files that exist.").BoolVar(&v.force)

	auto := c.Command("auto", "View or sign, whichever fits.").Default().Hidden()
	auto.Arg("file", "The token.").Required().StringVar(&v.file)
	auto.Arg("key", "To view: a certificate or public key. To sign: the private key.").StringVar(&v.key)
	all.Check(auto, v.checkAuto)
	all[auto.FullCommand()] = v.runAuto

	sign := c.Command("sign", "Sign a token.").HelpLong(fmt.Sprintf(jwtSignHelp, name)).Alias("provisioning").Alias("prov").Alias("p")
	sign.Arg("file", "Where to write the token.").Required().StringVar(&v.file)
	sign.Arg("key", "The private key to sign with.").Required().StringVar(&v.key)
	all.Check(sign, func() error { _, _, err := v.signing(); return err })
	all[sign.FullCommand()] = v.runSign

	view := c.Command("view", "Verify a token, if a key is given, and print it.").HelpLong(fmt.Sprintf(jwtViewHelp, name)).Alias("show").Alias("v").Alias("s")
	view.Arg("file", "The token.").Required().StringVar(&v.file)
	view.Arg("key", "Certificate or public key of the signer.").StringVar(&v.key)
	all.Check(view, v.checkView)
	all[view.FullCommand()] = v.runView

	keys := c.Command("keys", "Make a pair of keys for signing tokens.").HelpLong(fmt.Sprintf(jwtKeysHelp, name))
	keys.Arg("private", "Where to write the private key.").Required().StringVar(&v.file)
	keys.Arg("public", "Where to write the public key.").Required().StringVar(&v.key)
	all.Check(keys, v.checkKeys)
	all[keys.FullCommand()] = v.runKeys
}

// flag adds a flag and remembers whether it was given.
func (v *jwtVerb) flag(c *kingpin.CmdClause, name, help string) *kingpin.FlagClause {
	given := new(bool)
	v.set[name] = given
	return c.Flag(name, help).IsSetByUser(given)
}

// given reports whether one of the flags is on the command line.
func (v *jwtVerb) given(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return *v.set[name] })
}

// refuse returns one mistake for each flag on the command line that is not
// among those of the verb.
func (v *jwtVerb) refuse(verb string, allowed ...[]string) []error {
	var mistakes []error
	known := slices.Concat(allowed...)
	for name, given := range v.set {
		if *given && !slices.Contains(known, name) {
			mistakes = append(mistakes, fmt.Errorf("--%s has no meaning for `%s %s`", name, v.name, verb))
		}
	}
	slices.SortFunc(mistakes, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return mistakes
}

// checkAuto returns what is wrong with a command line without a verb.
func (v *jwtVerb) checkAuto() error {
	if !v.given(signFlags...) {
		return v.checkView()
	}
	_, _, err := v.signing()
	if v.key == "" {
		err = errors.Join(fmt.Errorf("no private key after %q to sign with", v.file), err)
	}
	return err
}

// runAuto is the form of 2019, without a verb.
func (v *jwtVerb) runAuto(ctx context.Context) error {
	_, err := os.Lstat(v.file)
	signing := v.given(signFlags...)
	switch {
	case err == nil && !signing:
		return v.runView(ctx)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case err != nil && !signing:
		return fmt.Errorf("%s: no such token; to sign one, give a private key, --token or --token-file, and --urls or --srv", v.file)
	default:
		return v.runSign(ctx)
	}
}
