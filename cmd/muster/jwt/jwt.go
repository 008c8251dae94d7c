// Package jwt implements "muster jwt", and Choria's spelling "muster tool jwt": provisioning tokens, offline.
package jwt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
)

// Add adds both spellings.
func Add(app *kingpin.Application, all cli.Verbs) {
	add(app.Command("jwt", "Sign and view provisioning tokens."), verb.Program+" jwt", all)
	tool := app.Command("tool", "Choria's name of some verbs.").Hidden().
		HelpLong("'muster tool jwt' is the same, as in 'choria tool jwt'.")
	add(tool.Command("jwt", "Sign and view provisioning tokens."), verb.Program+" tool jwt", all)
}

// help is formatted with the name of the command.
const help = `    %[1]s FILE [KEY]           view, verified if there is a public key
    %[1]s FILE KEY --urls ...  sign with a private key

Examples:

  %[1]s provisioning.jwt signer-key.pem --insecure --secret-file secret \
    --urls localhost:4222 --default
  %[1]s provisioning.jwt signer.pem

FILE is viewed if it exists and no flag of sign is given. The verbs sign and view
choose explicitly. Flags may stand anywhere. --output and --show-secret are for
view, all other flags for sign; each verb refuses the flags of the other.

A file whose name is a verb (sign, provisioning, prov, p, view, show, v or s) is
written with its directory, such as ./p.`

// command is one spelling. Each verb refuses the flags of other verbs.
type command struct {
	name  string // "muster jwt" or "muster tool jwt"
	flags []flag

	file, key      string // arguments
	passphraseFile string
	force          bool
	sign           signFlags
	view           viewFlags
}

// A flag belongs to one verb of a command.
type flag struct {
	name, verb string
	given      *bool // on the command line
}

func add(c *kingpin.CmdClause, name string, all cli.Verbs) {
	v := &command{name: name}
	c.HelpLong(fmt.Sprintf(help, name))
	v.addSignFlags(c)
	v.addViewFlags(c)
	v.flag(c, "sign", "passphrase-file").StringVar(&v.passphraseFile)
	v.flag(c, "sign", "force").BoolVar(&v.force)

	auto := c.Command("auto", "View or sign a token.").Default().Hidden()
	auto.Arg("file", "File of the token.").Required().StringVar(&v.file)
	const keyHelp = "Certificate or public key of the signer to verify with, or private key to sign with."
	auto.Arg("key", keyHelp).StringVar(&v.key)
	all.Check(auto, v.checkAuto)
	all[auto.FullCommand()] = v.runAuto

	sign := c.Command("sign", "Sign a token.").HelpLong(fmt.Sprintf(signHelp, name)).
		Alias("provisioning").Alias("prov").Alias("p")
	sign.Arg("file", "File to write.").Required().StringVar(&v.file)
	sign.Arg("key", "Private key of the signer.").Required().StringVar(&v.key)
	all.Check(sign, v.checkSign)
	all[sign.FullCommand()] = v.runSign

	view := c.Command("view", "Print a token, verified if a key is given.").HelpLong(fmt.Sprintf(viewHelp, name)).
		Alias("show").Alias("v").Alias("s")
	view.Arg("file", "File of the token.").Required().StringVar(&v.file)
	view.Arg("key", "Certificate or public key of the signer.").StringVar(&v.key)
	all.Check(view, v.checkView)
	all[view.FullCommand()] = v.runView
}

func (v *command) flag(c *kingpin.CmdClause, verb, name string) *kingpin.FlagClause {
	f := flag{name, verb, new(bool)}
	v.flags = append(v.flags, f)
	return cli.Flag(c, name).IsSetByUser(f.given)
}

// given reports whether one of the flags is on the command line.
func (v *command) given(names ...string) bool {
	return slices.ContainsFunc(v.flags, func(f flag) bool { return *f.given && slices.Contains(names, f.name) })
}

// means reports whether a flag of the verb is on the command line.
func (v *command) means(verb string) bool {
	return slices.ContainsFunc(v.flags, func(f flag) bool { return *f.given && f.verb == verb })
}

func (v *command) refuse(verb string) error {
	var mistakes []error
	for _, f := range v.flags {
		if *f.given && f.verb != verb {
			mistakes = append(mistakes, fmt.Errorf("--%s is not a flag of `%s %s`", f.name, v.name, verb))
		}
	}
	return errors.Join(mistakes...)
}

func (v *command) checkAuto() error {
	if !v.means("sign") {
		return v.checkView()
	}
	err := v.checkSign()
	if v.key == "" {
		err = errors.Join(fmt.Errorf("no private key after %q to sign with", v.file), err)
	}
	return err
}

// runAuto signs or views without a verb, as Choria does.
func (v *command) runAuto(ctx context.Context) error {
	_, err := os.Lstat(v.file)
	switch {
	case v.means("sign"):
		return v.runSign(ctx)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: no such token; to sign one, give a private key, --token or --secret-file, "+
			"and --urls or --srv", v.file)
	}
	return v.runView(ctx)
}
