package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/jwt"
	"muster/provisioner"
)

// TestASignerIsRemovedByANameThatAnotherOneHad removes a signer and gives its name to the
// next one, as whoever changes keys does: removed by the name, it is the next one that is
// removed, whichever of the two is listed first.
func TestASignerIsRemovedByANameThatAnotherOneHad(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	config := filepath.Join(f.Dir, "provisioner.yaml")
	type signer struct{ id, file string }
	var signers []signer
	for _, name := range []string{"a", "b"} {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		public, err := jwt.MarshalPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		id, err := jwt.Fingerprint(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		s := signer{string(id), filepath.Join(f.Dir, name+".pem")}
		write(t, s.file, string(public))
		signers = append(signers, s)
	}
	slices.SortFunc(signers, func(a, b signer) int { return cmp.Compare(a.id, b.id) })
	for _, s := range signers {
		muster(t, f.Dir, "signer", "add", s.file, "--name", "build", "--config", config)
		for range 2 { // asked again, nothing is left to do
			muster(t, f.Dir, "signer", "remove", "build", "--config", config)
		}
		var all []provisioner.SignerInfo
		if err := json.Unmarshal([]byte(muster(t, f.Dir, "signer", "list", "--json", "--config", config)), &all); err != nil {
			t.Fatal(err)
		}
		for _, i := range all {
			if i.Name == "build" && !i.Removed {
				t.Errorf("signer %s is still good after `muster signer remove build` of %s", i.ID, s.id)
			}
		}
	}
	// The tokens of one whose certificate is not of today are not good.
	for name, tt := range map[string]struct {
		from, to int // days from now
		says     string
	}{
		"ended":  {-3, -1, "signer ended is added, but its certificate ended "},
		"coming": {1, 3, "tokens signed by coming are good for any machine from "},
		"good":   {-1, 3, "tokens signed by good are good for any machine until "},
	} {
		write(t, filepath.Join(f.Dir, name+".crt"), signerCertificate(t, name, tt.from, tt.to))
		cmd := command(t, "signer", "add", filepath.Join(f.Dir, name+".crt"), "--config", config)
		if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 0 || !strings.HasPrefix(string(out), "muster: "+tt.says) {
			t.Errorf("a certificate that is %s: exit %d: %s", name, cmd.ProcessState.ExitCode(), out)
		}
	}
	cmd := command(t, "signer", "remove", "builds", "--config", config)
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "neither the name or id of a signer") {
		t.Errorf("a name that nobody has had: exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
	f.Check()
}

// signerCertificate returns a signer's certificate, good for some days around today.
func signerCertificate(t *testing.T, name string, from, to int) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: now.AddDate(0, 0, from), NotAfter: now.AddDate(0, 0, to)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
