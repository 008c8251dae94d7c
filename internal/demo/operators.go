package demo

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"muster/jwt"
	"muster/provisioner"
)

// signAgain is how often operators' tokens are signed again, which live twice as
// long.
const signAgain = jwt.MaxOperatorTTL / 2

// operator is one with what they come in by.
type operator struct {
	Operator
	key crypto.Signer
}

// addOperators adds one of each role, with a certificate, and a token in a file
// beside it.
func (s *stay) addOperators(ctx context.Context) ([]operator, error) {
	var all []operator
	for _, o := range []struct {
		name string
		role provisioner.OperatorRole
	}{{"anna", provisioner.RoleAdmin}, {"otto", provisioner.RoleOperator}, {"vera", provisioner.RoleViewer}} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("operator's key: %w", err)
		}
		public, err := jwt.MarshalPublicKey(key.Public())
		if err != nil {
			return nil, err
		}
		private, err := jwt.MarshalPrivateKey(key, nil)
		if err != nil {
			return nil, err
		}
		added, err := s.daemon.Operator().AddOperator(ctx, provisioner.NewOperator{Name: o.name, Role: o.role, Public: public, Certificate: true}, by("to try things"))
		if err != nil {
			return nil, err
		}
		path := filepath.Join(s.cfg.Dir, "operators", o.name)
		a := operator{Operator{Name: o.name, Role: o.role, Credential: path + ".pem", TokenFile: path + ".jwt"}, key}
		if err := os.WriteFile(a.Credential, []byte(string(private)+added.Chain+added.Roots), 0o600); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, s.signOperators(all)
}

// signOperators writes a new token of each.
func (s *stay) signOperators(all []operator) error {
	now := time.Now()
	for _, o := range all {
		text, err := jwt.SignOperator(o.key, jwt.OperatorClaims{
			Operator: o.Name, Audience: s.daemon.Store().Installation().ID, ID: jwt.NewJTI(), IssuedAt: now, ExpiresAt: now.Add(jwt.MaxOperatorTTL),
		})
		if err != nil {
			return err
		}
		// Whoever reads it meanwhile gets one of the two.
		next := o.TokenFile + ".next"
		if err := os.WriteFile(next, []byte(text+"\n"), 0o600); err != nil {
			return err
		}
		if err := os.Rename(next, o.TokenFile); err != nil {
			return err
		}
	}
	return nil
}

// keepSigned keeps the tokens good until ctx is done.
func (s *stay) keepSigned(ctx context.Context, all []operator) error {
	again := time.NewTicker(signAgain)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
			if err := s.signOperators(all); err != nil {
				return err
			}
		}
	}
}

func operatorsOf(all []operator) []Operator {
	var shown []Operator
	for _, o := range all {
		shown = append(shown, o.Operator)
	}
	return shown
}
