package operator

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/ca"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// newcomer holds the flags of "muster operator add".
type newcomer struct {
	name, role, key, out string
	ttl                  time.Duration
	certificate, ttlSet  bool
	names                []wire.Pattern
	sites                trust.Sites
}

const addHelp = `With --certificate, the command makes a key and a certificate, and writes both with
the installation's roots into NAME.pem, readable by its owner only, for --login.
With --public-key, the operator keeps the private key and signs tokens with it
('muster operator token').

An operator of that name gets the new role and key in place of the old ones.
--validity is limited by certificates.max_lifetime and 1y; without it, a certificate
lasts 90 days, or max_lifetime if that is less.

With --site, a viewer or operator sees and changes only nodes, pending keys, tokens and
service certificates at these sites.

  muster operator add anna --role operator --certificate
  muster operator add otto --role operator --site ams1 --certificate
  muster operator add ben --role viewer --public-key ben-public.pem
  muster operator add foreman --role foreman --names 'build-*.example.net' --certificate`

func addAdd(parent *kingpin.CmdClause, all cli.Verbs) {
	n := &newcomer{}
	c := parent.Command("add", "Add an operator, or change role and key.").HelpLong(addHelp)
	cli.Arg(c.Arg("name", "Name of the operator in events and history.").Required(), &n.name,
		cli.Checked(trust.CheckOperatorName))
	cli.Enum(cli.Flag(c, "role").Required(),
		&n.role, "viewer", "auditor", "operator", "admin", "foreman")
	cli.ParseEach(cli.Flag(c, "names"), &n.names, wire.ParseNamePattern)
	cli.ParseEach(cli.Flag(c, "site"), (*[]jwt.Site)(&n.sites), jwt.ParseSite)
	cli.Flag(c, "certificate").BoolVar(&n.certificate)
	cli.Flag(c, "public-key").StringVar(&n.key)
	cli.Flag(c, "out").StringVar(&n.out)
	cli.Duration(cli.Flag(c, "validity").IsSetByUser(&n.ttlSet), &n.ttl, ca.MinTTL, daemon.LongestLifetime)
	all.Check(c, n.check)
	verb.Order(c, all, n.run, func(o *verb.Operator, added *operate.AddedOperator) fmt.Stringer {
		if n.certificate {
			o.Say("%s has the role %s until %s: hand over %s, and keep no copy", added.Name, added.Role,
				verb.Instant(added.Ends), verb.Quoted(n.file()))
		} else {
			o.Say("%s has the role %s, and signs tokens with `muster operator token %s --installation %s`", added.Name,
				added.Role, added.Name, added.Installation)
		}
		return nil
	})
}

func (n *newcomer) file() string { return cmp.Or(n.out, n.name+".pem") }

func (n *newcomer) check() error {
	var errs []error
	switch {
	case n.certificate == (n.key != ""):
		errs = append(errs, errors.New("give one of --certificate and --public-key"))
	case !n.certificate && n.ttlSet:
		errs = append(errs, errors.New("--validity is for --certificate: tokens have a validity of their own"))
	}
	if !n.certificate && n.out != "" {
		errs = append(errs, errors.New("--out is for --certificate: with --public-key nothing is written"))
	}
	if foreman := n.role == string(trust.RoleForeman); foreman != (len(n.names) > 0) {
		errs = append(errs, errors.New("--names, with patterns of nodes, is for --role foreman, and required there"))
	}
	if err := n.sites.Check(trust.OperatorRole(n.role)); err != nil {
		errs = append(errs, verb.Flag("site", err))
	}
	return errors.Join(errs...)
}

func (n *newcomer) run(ctx context.Context, o *verb.Operator) (added *operate.AddedOperator, err error) {
	ask := func(public []byte) (*operate.AddedOperator, error) {
		order := httpapi.AddOperator{Why: o.Why, NewOperator: operate.NewOperator{
			Name:        n.name,
			Role:        trust.OperatorRole(n.role),
			Names:       n.names,
			Sites:       n.sites,
			Public:      public,
			Certificate: n.certificate,
		}}
		if n.certificate {
			order.TTL = n.ttl
		}
		return verb.Post[*operate.AddedOperator](ctx, o, "/v1/operators", order)
	}
	if !n.certificate {
		public, err := publicKey(n.key)
		if err != nil {
			return nil, verb.Flag("public-key", err)
		}
		return ask(public)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	private, noPrivate := keyfile.Marshal(key, nil)
	public, noPublic := jwt.MarshalPublicKey(key.Public())
	if err := errors.Join(noPrivate, noPublic); err != nil {
		return nil, err
	}
	err = cli.WriteNewBy(n.file(), 0o600, false, func(w io.Writer) error {
		// Writing is tried before the request, which replaces the operator's old certificate.
		if _, err := w.Write(private); err != nil {
			return err
		}
		if added, err = ask(public); err != nil {
			return err
		}
		_, err := io.WriteString(w, added.Chain+added.Roots)
		return err
	})
	if errors.Is(err, cli.ErrExists) {
		err = fmt.Errorf("%s: %w; a credential never replaces a file, give a new name with --out", n.file(),
			fs.ErrExist)
	}
	return added, err
}

// publicKey reads an operator's public key. It refuses a private key, so that none is sent.
func publicKey(path string) ([]byte, error) {
	return inputfile.Parse(path, inputfile.Typed, func(text []byte) ([]byte, error) {
		s, err := jwt.ParseSigner(text)
		if err != nil {
			return nil, err
		}
		return text, jwt.CheckOperatorKey(s.Key)
	})
}
