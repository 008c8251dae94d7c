package token

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"muster/provisioner/operate"

	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/signing"
	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/httpapi"
)

// issue is what the flags of "muster token issue" say.
type issue struct {
	node                            wire.Identity
	site                            jwt.Site
	ttl                             time.Duration
	key, passphraseFile, secretFile string
	urls                            []string
	srv, ca, seal                   string
}

// issued is a token with what the provisioner knows of it.
type issued struct {
	Token string          `json:"token"`
	Info  trust.TokenInfo `json:"info"`
}

const issueHelp = `Signs a token for one machine, good for one use and a short time, prints it, and
has the provisioner list it until it is used or over. With it the machine gets its
name also if another key had it before. The secret that guards the machine's
remote verbs is made up unless --secret-file has one; 'muster jwt' shows it.

  muster token issue web1.example.net --key signer-key.pem --urls broker.example.net:4222 \
    --ca ca/root.pem --seal seal.pub --ttl 1h > provisioning.jwt
  muster token issue web1.example.net --key signer-key.pem --srv example.net --why 'rack 4'`

func addIssue(parent *kingpin.CmdClause, all cli.Verbs) {
	i := &issue{}
	c := parent.Command("issue", "Sign a token for one machine and one use.").HelpLong(issueHelp)
	cli.Arg(c.Arg("node", "The machine's name.").Required(), &i.node, wire.ParseIdentity)
	c.Flag("key", "Private key of a signer that the provisioner trusts.").Required().PlaceHolder("FILE").StringVar(&i.key)
	c.Flag("passphrase-file", "File with the passphrase of the key.").PlaceHolder("FILE").StringVar(&i.passphraseFile)
	c.Flag("secret-file", "File with the secret that guards the machine's verbs.").PlaceHolder("FILE").StringVar(&i.secretFile)
	c.Flag("urls", "Brokers, host:port with commas between them; may be repeated.").PlaceHolder("URLS").StringsVar(&i.urls)
	c.Flag("srv", "Domain whose SRV records name the brokers, instead of --urls.").PlaceHolder("DOMAIN").StringVar(&i.srv)
	cli.Flag(c.Flag("site", "Only site where it may be used.").PlaceHolder("NAME"), &i.site, jwt.ParseSite)
	c.Flag("ca", "Certificate of the authority that the machine shall insist on, PEM.").PlaceHolder("FILE").StringVar(&i.ca)
	c.Flag("seal", "Public key to which the machine seals its request, a file or its text.").PlaceHolder("FILE").StringVar(&i.seal)
	cli.Duration(c.Flag("ttl", "How long it is good, as 30m or 1d; 30d at most.").Default("1h"), &i.ttl, time.Minute, operate.MaxIssuedTTL)
	all.Check(c, func() error { _, _, err := i.claims(time.Now().UTC()); return err })
	verb.Order(c, all, i.run, func(o *verb.Operator, t *issued) io.WriterTo {
		o.Say("token %s for %s, once, until %s", t.Info.ID, i.node, verb.Instant(t.Info.ExpiresAt))
		return cli.Text(t.Token + "\n")
	})
}

// run signs a token and has it listed: before it is printed, since one that is not listed is of no use.
func (i *issue) run(ctx context.Context, o *verb.Operator) (*issued, error) {
	claims, limits, err := i.claims(time.Now().UTC())
	if err != nil {
		return nil, err
	}
	text, err := i.sign(ctx, claims, limits)
	if err != nil {
		return nil, err
	}
	listed := httpapi.IssuedToken{TokenText: httpapi.TokenText{Token: wire.Secret(text)}, Why: o.Why}
	info, err := verb.Post[trust.TokenInfo](ctx, o, "/v1/tokens/issued", listed)
	return &issued{text, info}, err
}

// claims returns what the flags say, without what has to be read, or all that is
// wrong with it.
func (i *issue) claims(now time.Time) (jwt.Claims, jwt.Limits, error) {
	brokers, err := signing.Brokers(i.urls, i.srv)
	c := jwt.Claims{
		Brokers:      brokers,
		SRVDomain:    i.srv,
		Default:      true,
		Organization: jwt.DefaultOrganization,
		Purpose:      jwt.Purpose,
		Subject:      jwt.Purpose,
		Issuer:       verb.Program,
		IssuedAt:     now,
		NotBefore:    now,
		ExpiresAt:    now.Add(i.ttl),
		JTI:          jwt.NewJTI(),
	}
	l := jwt.Limits{Uses: 1, Identities: []wire.Pattern{wire.Pattern(i.node)}, Site: i.site}
	return c, l, err
}

// sign reads what the flags name and signs.
func (i *issue) sign(ctx context.Context, c jwt.Claims, l jwt.Limits) (string, error) {
	if err := signing.Pin(&l, i.ca, i.seal); err != nil {
		return "", err
	}
	c.Token = wire.Secret(rand.Text())
	if i.secretFile != "" {
		secret, err := keyfile.ReadLine(i.secretFile)
		if err != nil {
			return "", err
		}
		c.Token = wire.Secret(secret)
	}
	if err := c.SetLimits(l); err != nil {
		return "", fmt.Errorf("limits: %w", err)
	}
	key, err := signing.Key(ctx, i.key, i.passphraseFile, signing.SignerRemedy)
	if err != nil {
		return "", err
	}
	return jwt.Sign(key, c)
}
