package httpapi_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"muster/internal/keyfile"
	"muster/provisioner/httpapi"
)

// TestACredentialThatCannotBeReadInFull has a block of it damaged: without the root, those of
// the system would count, and without the key it would be said to have none.
func TestACredentialThatCannotBeReadInFull(t *testing.T) {
	t.Parallel()
	key, _ := newKey(t)
	rootKey, _ := newKey(t)
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "root"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: "anna"},
		NotAfter:     time.Now().Add(time.Hour),
	}
	certificate := func(c *x509.Certificate, public any) string {
		der, err := x509.CreateCertificate(rand.Reader, c, root, public, rootKey)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	private, err := keyfile.Marshal(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	front, end := string(private)+certificate(leaf, key.Public()), certificate(root, rootKey.Public())
	if c, err := httpapi.ParseCredential(
		[]byte(strings.ReplaceAll("# of anna\n"+front+end, "\n", "\r\n"))); err != nil || c.Certificate == nil ||
		c.Roots == nil {
		t.Errorf("whole: %+v, %v", c, err)
	}
	for name, text := range map[string]string{
		"marked": "\ufeff" + front + end, "root indented": front + " " + end, "root cut": front +
			end[:len(end)-30], "root altered": front + strings.Replace(end, "\nM", "\n!M", 1),
	} {
		if c, err := httpapi.ParseCredential([]byte(text)); c != nil || err == nil ||
			!strings.HasPrefix(err.Error(), "credential: 1 of 3 PEM blocks cannot be read: ") {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}
}
