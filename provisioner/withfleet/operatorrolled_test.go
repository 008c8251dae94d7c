package provisioner_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/jwt"
	"muster/provisioner"
	"muster/provisioner/ca"
)

// TestAnOperatorOutlivesTheAuthority rolls the authority over that an operator's
// certificate is of, with no node that needs the old one.
func TestAnOperatorOutlivesTheAuthority(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{RolloverCheck: 50 * time.Millisecond})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := jwt.MarshalPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	added, err := f.Daemon().Operator().AddOperator(f.Context(), provisioner.NewOperator{Name: "anna", Role: "operator", Public: public, Certificate: true},
		provisioner.Cause{By: "root"})
	if err != nil {
		t.Fatal(err)
	}
	chain, err := ca.ParseCertificates([]byte(added.Chain))
	if err != nil {
		t.Fatal(err)
	}
	login := func() error {
		_, err := f.Daemon().Operator().LoginCertificate(f.Context(), chain[0], chain[1:], "192.0.2.1")
		return err
	}
	if err := login(); err != nil {
		t.Fatal(err)
	}
	f.Roll()
	f.Eventually("the old authority is looked at", func() bool {
		return strings.Contains(f.Log(), "previous certificate authority is")
	})
	if err := login(); err != nil {
		t.Errorf("with a certificate that is good until %s: %v", chain[0].NotAfter, err)
	}
}
