package verb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/setup"
	"muster/jwt"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
)

// The environment variables that stand for --config, --url and --login.
const (
	configVariable = "MUSTER_CONFIG"
	urlVariable    = "MUSTER_URL"
	loginVariable  = "MUSTER_LOGIN"
)

// DefaultConfig is the default path of a provisioner's configuration.
const DefaultConfig = setup.DefaultDir + "/provisioner.yaml"

// Config adds --config, the configuration of a provisioner.
func Config(c *kingpin.CmdClause, file *string) *kingpin.FlagClause {
	flag := cli.Flag(c, "config").Envar(configVariable).Default(DefaultConfig)
	flag.StringVar(file)
	return flag
}

// Setup has the common flags of verbs that read a provisioner's configuration, and ask no provisioner.
type Setup struct {
	Output
	Config string
}

// AddFlags adds their flags.
func (s *Setup) AddFlags(c *kingpin.CmdClause) {
	Config(c, &s.Config)
	s.Output.AddFlags(c)
}

// Operator has the common flags of verbs that ask a running provisioner.
type Operator struct {
	Setup
	Why string // reason of a change

	url   string
	login []string // files, see readLogin

	configSet, urlSet, loginSet bool // on the command line
}

// AddFlags adds the flags that choose the provisioner and the output.
func (o *Operator) AddFlags(c *kingpin.CmdClause) {
	Config(c, &o.Config).IsSetByUser(&o.configSet)
	o.Output.AddFlags(c)
	cli.Flag(c, "url").Envar(urlVariable).IsSetByUser(&o.urlSet).StringVar(&o.url)
	cli.Flag(c, "login").Envar(loginVariable).IsSetByUser(&o.loginSet).StringsVar(&o.login)
	c.Action(func(*kingpin.ParseContext) error {
		if o.configSet && !o.urlSet { // --config on the command line overrides MUSTER_URL
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

// Bulk has the flags of a verb that changes one subject or many, and shows them first.
type Bulk struct {
	Operator

	DryRun, Yes bool
}

// AddFlags adds them with those of the operator, and the checks. --dry-run needs no reason.
func (b *Bulk) AddFlags(c *kingpin.CmdClause, all cli.Verbs) {
	cli.Flag(c, "dry-run").BoolVar(&b.DryRun)
	cli.Flag(c, "yes").BoolVar(&b.Yes)
	b.Operator.AddFlags(c)
	b.AddWhy(c)
	all.Check(c, func() error {
		if b.DryRun {
			return b.CheckURL()
		}
		return b.CheckChange()
	})
}

// AddWhy adds --why.
func (o *Operator) AddWhy(c *kingpin.CmdClause) {
	cli.Flag(c, "why").StringVar(&o.Why)
}

// Remote reports whether the provisioner is asked over HTTPS.
func (o *Operator) Remote() bool { return o.url != "" }

// Chosen returns the flags of the command line that chose the provisioner, each after a blank, so that an advised
// command can be pasted. Environment variables hold for it too.
func (o *Operator) Chosen() string {
	var b strings.Builder
	if o.configSet && !o.Remote() {
		b.WriteString(" --config " + Quoted(o.Config))
	}
	if o.urlSet {
		b.WriteString(" --url " + Quoted(o.url))
	}
	if o.loginSet && o.Remote() {
		for _, file := range o.login {
			b.WriteString(" --login " + Quoted(file))
		}
	}
	return b.String()
}

// asking are the commands in advice that ask a provisioner.
var asking = regexp.MustCompile("`muster (?:allow|certificate|events|node|recovery|resume|status|token|webhook)[^`]*")

// Pasteable adds [Operator.Chosen] to the commands in a text.
func (o *Operator) Pasteable(text string) string {
	chosen := strings.ReplaceAll(o.Chosen(), "$", "$$")
	return asking.ReplaceAllString(text, "${0}"+chosen)
}

// URL returns --url.
func (o *Operator) URL() string { return o.url }

// SessionFile returns the file for a session of `muster login` at the provisioner of --url: no other host gets it.
func (o *Operator) SessionFile() (string, error) {
	u, err := url.Parse(o.url)
	if err != nil || u.Host == "" {
		return "", errors.New("--url: missing: https://HOST:PORT of a provisioner")
	}
	dir, err := os.UserConfigDir()
	return filepath.Join(dir, "muster", strings.ReplaceAll(u.Host, ":", "_")+".session"), err
}

// SaveSession writes a session for its operator alone.
func SaveSession(file, text string) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return cli.WriteNew(file, []byte(text+"\n"), 0o600, true)
}

// CheckURL returns an error if the URL is not valid.
func (o *Operator) CheckURL() error {
	if !o.Remote() {
		return nil
	}
	return named("--url", urlVariable, o.url, httpapi.CheckURL(o.url))
}

// CheckChange is CheckURL, and requires --why over HTTPS.
func (o *Operator) CheckChange() error {
	err := o.CheckURL()
	if o.Remote() && strings.TrimSpace(o.Why) == "" {
		err = errors.Join(err, errors.New("--why: missing: a change over HTTPS needs a reason, which history keeps"))
	}
	return err
}

// Advice returns what can be done about findings, each once. Commands can be pasted.
func (o *Operator) Advice(findings []fleet.Finding) (do []string) {
	for _, f := range findings {
		for _, a := range f.Do {
			text := o.Pasteable(a.Text)
			if command := a.Command(); command != "" {
				text = command + o.Chosen() + ": " + text
			}
			if !slices.Contains(do, text) {
				do = append(do, text)
			}
		}
	}
	return do
}

// named puts the source of the value before err: the flag, or the environment variable.
func named(flag, variable, value string, err error) error {
	if err == nil {
		return nil
	}
	if value == os.Getenv(variable) {
		flag = variable
	}
	return errors.New(flag + ": " + strings.ReplaceAll(err.Error(), "\n", "\n"+flag+": "))
}

// do sends one request to the provisioner; see [httpapi.Client.Do].
func (o *Operator) do(ctx context.Context, method, path string, in, out any) error {
	client, err := o.Client()
	if err != nil {
		return err
	}
	err = client.Do(ctx, method, path, in, out)
	if p, ok := errors.AsType[*httpapi.Problem](err); ok {
		p.Detail, p.Remedy = o.Pasteable(p.Detail), o.Pasteable(p.Remedy)
	}
	return err
}

// Client returns a client of the provisioner's API, over the socket or HTTPS.
func (o *Operator) Client() (*httpapi.Client, error) {
	if !o.Remote() {
		socket, err := daemon.SocketOf(o.Config)
		if errors.Is(err, fs.ErrNotExist) && o.Config == DefaultConfig && !o.configSet {
			if running := httpapi.RunningSockets(); len(running) == 1 {
				return httpapi.NewClient(running[0]), nil
			} else if len(running) > 1 {
				err = fmt.Errorf("%w; several provisioners run here, with their data in %s", err,
					strings.Join(running, ", "))
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: name the provisioner's configuration with --config, "+
				"or another provisioner with --url", err)
		}
		if err != nil {
			return nil, err
		}
		return httpapi.NewClient(socket), nil
	}
	shown, token, unread := readLogin(o.login)
	if file, err := o.SessionFile(); err == nil && unread == nil && token == "" && shown.Certificate == nil {
		if _, missing := os.Stat(file); missing == nil {
			_, token, unread = readLogin([]string{file})
		}
	}
	client, err := httpapi.NewRemote(o.url, shown, token)
	err = errors.Join(err, named("--login", loginVariable, strings.Join(o.login, "\n"), unread))
	if err != nil {
		return nil, err
	}
	return client, nil
}

// readLogin reads the files of --login: certificates and keys in PEM, or a token. The error quotes no contents.
func readLogin(paths []string) (c httpapi.Credential, token string, err error) {
	var blocks []byte
	for _, path := range paths {
		text, unread := inputfile.ReadText(path, inputfile.Typed)
		switch {
		case unread != nil:
			err = errors.Join(err, unread)
		case !bytes.Contains(text, []byte("-----BEGIN ")):
			token, unread = parseOperatorToken(path, text)
			err = errors.Join(err, unread)
		default:
			if bytes.Contains(text, []byte("PRIVATE KEY-----")) {
				err = errors.Join(err, keyfile.CheckPrivate(path))
			}
			blocks = append(append(blocks, text...), '\n')
		}
	}
	if err != nil || blocks == nil {
		return c, token, err
	}
	read, err := httpapi.ParseCredential(blocks)
	if err != nil {
		return c, "", fmt.Errorf("%s: %w", strings.Join(paths, ", "), err)
	}
	return *read, token, nil
}

func parseOperatorToken(path string, text []byte) (string, error) {
	const chars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
	token := strings.TrimSpace(string(text))
	if len(token) > jwt.MaxTokenBytes || strings.Count(token, ".") != 2 || strings.Trim(token, chars) != "" {
		return "", fmt.Errorf("%s: neither certificates in PEM nor a token as `muster operator token` prints it", path)
	}
	return token, nil
}
