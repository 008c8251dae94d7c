package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// tokenIssueVerb is "muster token issue".
type tokenIssueVerb struct {
	operator
	node, key, passphraseFile, secretFile string
	urls                                  []string
	srv, site, ca, seal, ttl              string
}

const aboutIssuing = `Signs a token for one machine, good for one use and a short time, prints it, and
has the provisioner list it until it is used or over. With it the machine gets its
name also if another key had it before. The secret that guards the machine's
remote verbs is made up unless --secret-file has one; 'muster jwt' shows it.

  muster token issue web1.example.net --key signer-key.pem --urls broker.example.net:4222 \
    --ca ca/root.pem --seal seal.pub --ttl 1h > provisioning.jwt
  muster token issue web1.example.net --key signer-key.pem --srv example.net --why 'rack 4'`

func addTokenIssue(parent *kingpin.CmdClause, all verbs) {
	v := &tokenIssueVerb{}
	c := parent.Command("issue", "Sign a token for one machine and one use.").HelpLong(aboutIssuing)
	c.Arg("node", "The machine's name.").Required().StringVar(&v.node)
	c.Flag("key", "Private key of a signer that the provisioner trusts.").Required().PlaceHolder("FILE").StringVar(&v.key)
	c.Flag("passphrase-file", "File with the passphrase of the key.").PlaceHolder("FILE").StringVar(&v.passphraseFile)
	c.Flag("secret-file", "File with the secret that guards the machine's verbs.").PlaceHolder("FILE").StringVar(&v.secretFile)
	c.Flag("urls", "Brokers, host:port with commas between them; may be repeated.").PlaceHolder("URLS").StringsVar(&v.urls)
	c.Flag("srv", "Domain whose SRV records name the brokers, instead of --urls.").PlaceHolder("DOMAIN").StringVar(&v.srv)
	c.Flag("site", "Only site where it may be used.").PlaceHolder("NAME").StringVar(&v.site)
	c.Flag("ca", "Certificate of the authority that the machine shall insist on, PEM.").PlaceHolder("FILE").StringVar(&v.ca)
	c.Flag("seal", "Public key to which the machine seals its request, a file or its text.").PlaceHolder("FILE").StringVar(&v.seal)
	c.Flag("ttl", "How long it is good, as 30m or 1d; 30d at most.").Default("1h").StringVar(&v.ttl)
	v.addChange(c, all)
	all.Check(c, func() error { _, _, mistakes := v.claims(time.Now().UTC()); return errors.Join(mistakes...) })
	all[c.FullCommand()] = v.run
}

func (v *tokenIssueVerb) run(ctx context.Context) error {
	claims, limits, mistakes := v.claims(time.Now().UTC())
	if err := errors.Join(mistakes...); err != nil {
		return err
	}
	text, err := v.sign(ctx, claims, limits)
	if err != nil {
		return err
	}
	// Before it is printed: one that is not listed is nobody's.
	var info provisioner.TokenInfo
	issued := httpapi.IssuedToken{TokenText: httpapi.TokenText{Token: wire.Secret(text)}, Why: v.why}
	if err := v.ask(ctx, http.MethodPost, "/v1/tokens/issued", issued, &info); err != nil {
		return err
	}
	return v.print(map[string]any{"token": text, "info": info}, func() error {
		v.say("token %s for %s, once, until %s", info.ID, v.node, instant(info.ExpiresAt))
		_, err := fmt.Println(text)
		return err
	})
}

// claims returns what the flags say, without what has to be read, and all that is
// wrong with it.
func (v *tokenIssueVerb) claims(now time.Time) (jwt.Claims, jwt.Limits, []error) {
	form := &jwtVerb{urls: v.urls, srv: v.srv}
	c := jwt.Claims{
		SRVDomain: v.srv, Default: true, Organization: jwt.DefaultOrganization, Purpose: jwt.Purpose, Subject: jwt.Purpose,
		Issuer: program, IssuedAt: now, NotBefore: now, JTI: jwt.NewJTI(),
	}
	mistakes := form.brokers(&c)
	l := jwt.Limits{Uses: 1}
	if id, err := wire.ParseIdentity(v.node); err != nil {
		mistakes = append(mistakes, err)
	} else {
		l.Identities = []wire.Pattern{wire.Pattern(id)}
	}
	ttl, err := cli.DurationOf("ttl", v.ttl, time.Minute, provisioner.MaxIssuedTTL)
	if err != nil {
		mistakes = append(mistakes, err)
	}
	c.ExpiresAt = now.Add(ttl)
	if v.site != "" {
		if l.Site, err = jwt.ParseSite(v.site); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--site: %w", err))
		}
	}
	return c, l, mistakes
}

// sign reads what the flags name and signs.
func (v *tokenIssueVerb) sign(ctx context.Context, c jwt.Claims, l jwt.Limits) (string, error) {
	if err := pinned(ctx, &l, v.ca, v.seal); err != nil {
		return "", err
	}
	c.Token = wire.Secret(rand.Text())
	if v.secretFile != "" {
		secret, err := readLine(ctx, v.secretFile)
		if err != nil {
			return "", err
		}
		c.Token = wire.Secret(secret)
	}
	if err := c.SetLimits(l); err != nil {
		return "", err
	}
	b, err := readSigningKey(ctx, v.key)
	if err != nil {
		return "", err
	}
	key, err := jwt.ParsePrivateKey(b, func() ([]byte, error) {
		if v.passphraseFile != "" {
			return readLine(ctx, v.passphraseFile)
		}
		return askPassphrase(ctx, v.key)
	})
	if err != nil {
		return "", fmt.Errorf("%s: %w", v.key, err)
	}
	return jwt.Sign(key, c)
}
