package verb

import (
	"context"
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

// DefaultConfig is where the configuration of a provisioner lies.
const DefaultConfig = "/etc/muster/provisioner/provisioner.yaml"

// Config adds --config, the configuration of a provisioner.
func Config(c *kingpin.CmdClause, help string, file *string) *kingpin.FlagClause {
	flag := c.Flag("config", help+" Default: "+DefaultConfig+".").Default(DefaultConfig).PlaceHolder("FILE")
	flag.StringVar(file)
	return flag
}

// Setup is what the verbs that need a provisioner's configuration, and print what
// programs can read, have in common. None of them asks a provisioner.
type Setup struct {
	Output
	Config string
}

// AddFlags adds their flags.
func (s *Setup) AddFlags(c *kingpin.CmdClause) {
	Config(c, "Configuration file of the provisioner.", &s.Config)
	s.AddJSON(c)
}

// Operator is what the verbs that ask the running provisioner have in common.
type Operator struct {
	Setup
	Why string // reason of a change

	url        string
	credential string
	tokenFile  string

	configSet, urlSet bool // on the command line
}

// AddFlags adds the flags that say which provisioner is asked.
func (o *Operator) AddFlags(c *kingpin.CmdClause) {
	Config(c, "Configuration file of the running provisioner.", &o.Config).IsSetByUser(&o.configSet)
	o.AddJSON(c)
	c.Flag("url", "Provisioner to ask over HTTPS, https://host:port, in place of the one on this machine.").
		Envar(urlVariable).PlaceHolder("URL").IsSetByUser(&o.urlSet).StringVar(&o.url)
	c.Flag("credential", "With --url: file with your key and certificate, as 'muster operator add' writes it, or with the roots to trust.").
		Envar(credentialVariable).PlaceHolder("FILE").StringVar(&o.credential)
	c.Flag("token-file", "With --url: file with a token of 'muster operator token', in place of the certificate.").
		Envar(tokenVariable).PlaceHolder("FILE").StringVar(&o.tokenFile)
	c.Action(func(*kingpin.ParseContext) error {
		if o.configSet && !o.urlSet { // a file that is named counts more than the environment
			o.url = ""
		}
		return nil
	})
}

// AddChangeFlags adds the flags of a verb that changes something, with their checks.
func (o *Operator) AddChangeFlags(c *kingpin.CmdClause, all cli.Verbs) {
	o.AddFlags(c)
	o.AddWhy(c)
	all.Check(c, o.CheckChange)
}

// AddWhy adds the flag that says why.
func (o *Operator) AddWhy(c *kingpin.CmdClause) {
	c.Flag("why", "Reason, for the history; needed with --url.").PlaceHolder("TEXT").StringVar(&o.Why)
}

// Remote reports whether a provisioner elsewhere is asked.
func (o *Operator) Remote() bool { return o.url != "" }

// CheckURL reports an --url that is none.
func (o *Operator) CheckURL() error {
	if !o.Remote() {
		return nil
	}
	return named("--url", urlVariable, o.url, httpapi.CheckURL(o.url))
}

// CheckChange is CheckURL, and reports a missing reason where one is needed.
func (o *Operator) CheckChange() error {
	err := o.CheckURL()
	if o.Remote() && strings.TrimSpace(o.Why) == "" {
		err = errors.Join(err, errors.New("--why: missing: a change over HTTPS says why, for the history"))
	}
	return err
}

// named puts in front of err what has given the value: the flag, or the environment variable that stands for it.
func named(flag, variable, value string, err error) error {
	if err == nil {
		return nil
	}
	if value == os.Getenv(variable) {
		flag = variable
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// do sends one request to the provisioner; see [httpapi.Client.Do].
func (o *Operator) do(ctx context.Context, method, path string, in, out any) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	return client.Do(ctx, method, path, in, out)
}

// Client returns what asks the provisioner: over the socket, or over HTTPS.
func (o *Operator) Client() (*httpapi.Client, error) {
	if !o.Remote() {
		socket, err := daemon.SocketOf(o.Config)
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: name the provisioner's configuration with --config, or a provisioner elsewhere with --url", err)
		}
		if err != nil {
			return nil, err
		}
		return httpapi.NewClient(socket), nil
	}
	shown, noCredential := readCredential(o.credential)
	token, noToken := readOperatorToken(o.tokenFile)
	client, err := httpapi.NewRemote(o.url, shown, token)
	err = errors.Join(err, named("--credential", credentialVariable, o.credential, noCredential), named("--token-file", tokenVariable, o.tokenFile, noToken))
	if err != nil {
		return nil, err
	}
	return client, nil
}

// readCredential reads what --credential names.
func readCredential(path string) (c httpapi.Credential, err error) {
	if path == "" {
		return c, nil
	}
	text, err := conffile.ReadFile(path)
	if err != nil {
		return c, err
	}
	read, err := httpapi.ParseCredential(text)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if read.Certificate != nil { // and its key
		if err := keyfile.CheckPrivate(path); err != nil {
			return c, err
		}
	}
	return *read, nil
}

// readOperatorToken reads what --token-file names. What is no token is not sent, nor shown.
func readOperatorToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := conffile.ReadFile(path)
	if err != nil {
		return "", err
	}
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	token := strings.TrimSpace(string(text))
	if len(token) > jwt.MaxTokenBytes || strings.Count(token, ".") != 2 || strings.Trim(token, chars) != "" {
		return "", fmt.Errorf("%s: no token as `muster operator token` prints it", path)
	}
	return token, nil
}
