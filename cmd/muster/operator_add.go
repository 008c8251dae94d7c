package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/httpapi"
)

// operatorAddVerb is "muster operator add".
type operatorAddVerb struct {
	operator
	name, role, key, out, ttl string
	certificate, ttlSet       bool
}

const operatorAddHelp = `With --certificate, makes a key and a certificate over it, and writes both with the
installation's roots into NAME.pem, readable by its owner only: that is what
--credential of other verbs takes. With --key, the operator has made the key
themselves and signs tokens with it ('muster operator token').

An operator who is there gets the new role and key in place of what they had.

  muster operator add anna --role operator --certificate
  muster operator add ben --role viewer --key ben-public.pem`

func addOperatorAdd(parent *kingpin.CmdClause, all verbs) {
	v := &operatorAddVerb{}
	c := parent.Command("add", "Let an operator in, or change their role.").HelpLong(operatorAddHelp)
	c.Arg("name", "What events and history call them.").Required().StringVar(&v.name)
	c.Flag("role", "viewer looks, operator changes nodes and tokens, admin changes whom the installation trusts.").Required().EnumVar(&v.role, "viewer", "operator", "admin")
	c.Flag("certificate", "Make a key and a certificate.").BoolVar(&v.certificate)
	c.Flag("key", "Their public key, P-256 or Ed25519.").PlaceHolder("FILE").StringVar(&v.key)
	c.Flag("out", "File to write with --certificate; NAME.pem if not given.").PlaceHolder("FILE").StringVar(&v.out)
	c.Flag("ttl", "Life of the certificate, as 30d; up to certificates.max_lifetime, and 1y at most.").Default("30d").IsSetByUser(&v.ttlSet).StringVar(&v.ttl)
	v.addChange(c, all)
	all.Check(c, func() error { _, err := v.check(); return err })
	all[c.FullCommand()] = v.run
}

// check returns the life of the certificate, or all that is wrong with the flags.
func (v *operatorAddVerb) check() (time.Duration, error) {
	ttl, err := cli.DurationOf("ttl", v.ttl, ca.MinTTL, daemon.LongestLifetime)
	switch {
	case v.certificate == (v.key != ""):
		err = errors.Join(errors.New("give one of --certificate and --key"), err)
	case !v.certificate && v.ttlSet:
		err = errors.Join(errors.New("--ttl is a certificate's, and there is none with --key: tokens have their own"), err)
	}
	if !v.certificate && v.out != "" {
		err = errors.Join(errors.New("--out is for --certificate: with --key nothing is written"), err)
	}
	return ttl, errors.Join(err, provisioner.CheckOperatorName(v.name))
}

func (v *operatorAddVerb) run(ctx context.Context) error {
	ttl, err := v.check()
	if err != nil {
		return err
	}
	if !v.certificate {
		public, err := publicKey(ctx, v.key)
		if err != nil {
			return err
		}
		return v.add(ctx, provisioner.NewOperator{Public: public}, nil)
	}
	if v.out == "" {
		v.out = v.name + ".pem"
	}
	if err := cli.CheckNew(v.out, false); errors.Is(err, cli.ErrExists) { // before anybody loses what they had
		return fmt.Errorf("%s: %w; a credential is never put in place of another file, give a new name with --out", v.out, fs.ErrExist)
	} else if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := jwt.MarshalPrivateKey(key, nil)
	if err != nil {
		return err
	}
	public, err := jwt.MarshalPublicKey(key.Public())
	if err != nil {
		return err
	}
	return v.add(ctx, provisioner.NewOperator{Public: public, Certificate: true, TTL: ttl}, private)
}

// publicKey reads an operator's public key. A private one is found out here: it is
// sent nowhere.
func publicKey(ctx context.Context, path string) ([]byte, error) {
	text, err := readFile(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("--key: %w", err)
	}
	s, err := jwt.ParseSigner(text)
	if err == nil {
		err = jwt.CheckOperatorKey(s.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("--key: %s: %w", path, err)
	}
	return text, nil
}

// add asks for the operator and writes the credential, if there is a private key.
func (v *operatorAddVerb) add(ctx context.Context, n provisioner.NewOperator, private []byte) error {
	n.Name, n.Role = v.name, provisioner.OperatorRole(v.role)
	var added provisioner.AddedOperator
	ask := func() error {
		return v.ask(ctx, http.MethodPost, "/v1/operators", httpapi.AddOperator{NewOperator: n, Why: v.why}, &added)
	}
	if private == nil {
		if err := ask(); err != nil {
			return err
		}
	} else if err := cli.WriteNewBy(v.out, 0o600, false, func(w io.Writer) error {
		// The file is there, if without its name, before anybody loses what they had.
		if _, err := w.Write(private); err != nil {
			return err
		}
		if err := ask(); err != nil {
			return err
		}
		_, err := io.WriteString(w, added.Chain+added.Roots)
		return err
	}); err != nil {
		return err
	}
	return v.printDone(&added, func() error {
		if private != nil {
			v.say("%s is %s until %s: give them %s, and keep no copy", added.Name, added.Role, instant(added.Ends), quoted(v.out))
			return nil
		}
		v.say("%s is %s: they sign tokens with `muster operator token %s --installation %s`", added.Name, added.Role, added.Name, added.Installation)
		return nil
	})
}
