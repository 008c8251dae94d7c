package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/conffile"
	"muster/internal/daemon"
	"muster/internal/keyfile"
	"muster/jwt"
	"muster/provisioner/httpapi"
)

// The environment variables that stand for --url, --credential and --token-file.
const (
	urlVariable        = "MUSTER_URL"
	credentialVariable = "MUSTER_CREDENTIAL" //nolint:gosec // the name of a variable, and no credential
	tokenVariable      = "MUSTER_TOKEN_FILE" //nolint:gosec // likewise
)

// given returns what somebody has written to give value: the flag, or the environment
// variable that stands for it.
func given(flag, variable, value string) string {
	if value == os.Getenv(variable) {
		return variable
	}
	return flag
}

// setup is what the verbs that need a provisioner's configuration, and print what
// programs can read, have in common. None of them need ask anybody.
type setup struct {
	config string
	named  bool // config was given
	json   bool
}

// addSetup adds their flags.
func (s *setup) addSetup(c *kingpin.CmdClause, config string) {
	c.Flag("config", config+configHelp).Default(defaultConfig).PlaceHolder("FILE").IsSetByUser(&s.named).StringVar(&s.config)
	c.Flag("json", "Print JSON for programs.").BoolVar(&s.json)
}

// operator is what the verbs that ask the running provisioner have in common.
type operator struct {
	setup
	url        string
	asked      bool // url was given, and is not the environment's
	credential string
	tokenFile  string
	why        string
}

// add adds the flags of a verb that only looks, and always asks.
func (o *operator) add(c *kingpin.CmdClause, all verbs) {
	o.addFlags(c)
	all.Check(c, o.checkURL)
}

// addFlags adds the flags of a verb that does not always ask, and checks them itself.
func (o *operator) addFlags(c *kingpin.CmdClause) {
	o.addSetup(c, "Configuration file of the running provisioner.")
	c.Flag("url", "Provisioner to ask over HTTPS, https://host:port, in place of the one on this machine.").Envar(urlVariable).PlaceHolder("URL").IsSetByUser(&o.asked).StringVar(&o.url)
	c.Flag("credential", "With --url: file with your key and certificate, as 'muster operator add' writes it, or with the roots to trust.").
		Envar(credentialVariable).PlaceHolder("FILE").StringVar(&o.credential)
	c.Flag("token-file", "With --url: file with a token of 'muster operator token', in place of the certificate.").Envar(tokenVariable).PlaceHolder("FILE").StringVar(&o.tokenFile)
	c.Action(func(*kingpin.ParseContext) error {
		// Who names a provisioner's file means that one, whatever was exported once.
		if o.named && !o.asked {
			o.url = ""
		}
		return nil
	})
}

// checkURL reports an --url that is none, which whoever asks nobody is not told:
// they may have set MUSTER_URL once and for all.
func (o *operator) checkURL() error {
	if o.url == "" {
		return nil
	}
	if err := httpapi.CheckURL(o.url); err != nil {
		return fmt.Errorf("%s: %w", given("--url", urlVariable, o.url), err)
	}
	return nil
}

// addChange adds the flags of a verb that changes something.
func (o *operator) addChange(c *kingpin.CmdClause, all verbs) {
	o.add(c, all)
	o.addWhy(c)
	all.Check(c, o.saysWhy)
}

// addWhy adds the flag that says why.
func (o *operator) addWhy(c *kingpin.CmdClause) {
	c.Flag("why", "Reason, for the history; needed with --url.").PlaceHolder("TEXT").StringVar(&o.why)
}

// saysWhy reports a reason that is missing where one is needed.
func (o *operator) saysWhy() error {
	if o.url != "" && strings.TrimSpace(o.why) == "" {
		return errors.New("--why: missing: a change over HTTPS says why, for the history")
	}
	return nil
}

// ask sends one request to the provisioner; see [httpapi.Client.Do].
func (o *operator) ask(ctx context.Context, method, path string, in, out any) error {
	client, err := o.client(ctx)
	if err != nil {
		return err
	}
	return client.Do(ctx, method, path, in, out)
}

// client returns what asks the provisioner: over the socket, or over HTTPS. It waits for the
// files that are named no longer than ctx.
func (o *operator) client(ctx context.Context) (*httpapi.Client, error) {
	return now(ctx, o.reach)
}

// reach is client without an end.
func (o *operator) reach() (*httpapi.Client, error) {
	if o.url == "" {
		socket, err := daemon.SocketOf(o.config)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: name the provisioner's configuration with --config, or a provisioner elsewhere with --url", err)
		}
		if err != nil {
			return nil, err
		}
		return httpapi.NewClient(socket), nil
	}
	shown, noCredential := o.shown()
	token, noToken := o.token()
	client, err := httpapi.NewRemote(o.url, shown, token)
	if err = errors.Join(err, noCredential, noToken); err != nil {
		return nil, err
	}
	return client, nil
}

// shown reads what --credential names.
func (o *operator) shown() (c httpapi.Credential, err error) {
	if o.credential == "" {
		return c, nil
	}
	from := given("--credential", credentialVariable, o.credential)
	text, err := conffile.ReadFile(o.credential)
	if err != nil {
		return c, fmt.Errorf("%s: %w", from, err)
	}
	read, err := httpapi.ParseCredential(text)
	if err != nil {
		return c, fmt.Errorf("%s: %s: %w", from, o.credential, err)
	}
	if read.Certificate != nil { // and its key, with which anybody is this operator
		if err := keyfile.CheckPrivate(o.credential); err != nil {
			return c, fmt.Errorf("%s: %w", from, err)
		}
	}
	return *read, nil
}

// token reads what --token-file names. What is no token is not sent, nor shown.
func (o *operator) token() (string, error) {
	if o.tokenFile == "" {
		return "", nil
	}
	from := given("--token-file", tokenVariable, o.tokenFile)
	text, err := conffile.ReadFile(o.tokenFile)
	if err != nil {
		return "", fmt.Errorf("%s: %w", from, err)
	}
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	token := strings.TrimSpace(string(text))
	if len(token) > jwt.MaxTokenBytes || strings.Count(token, ".") != 2 || strings.Trim(token, chars) != "" {
		return "", fmt.Errorf("%s: %s: no token as `muster operator token` prints it", from, o.tokenFile)
	}
	return token, nil
}

// print writes an answer: as JSON, or as text by what is given.
func (s *setup) print(answer any, text func() error) error {
	if !s.json {
		return text()
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	return e.Encode(answer)
}

// printDone is print for a verb that has changed something.
func (s *setup) printDone(answer any, text func() error) error {
	return unprinted("it is done", s.print(answer, text))
}

// unprinted is why the answer of a verb could not be written, if it could not: what was
// done stays done, and whoever did it again because of the status would be refused.
func unprinted(done string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s, only the answer could not be written: %w", done, err)
}

// say tells a person what was done; programs have the JSON.
func (s *setup) say(format string, args ...any) {
	if !s.json {
		cli.Say(os.Stderr, program, format, args...)
	}
}
