package puppet_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/keyfile"
	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/provisioner/puppet"
)

// TestAuthorityIsLoadedAndServedByteForByte writes the files as `muster ca puppet` does, and then edits them.
func TestAuthorityIsLoadedAndServedByteForByte(t *testing.T) {
	t.Parallel()
	g, err := ca.Generate("", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	other, err := ca.Generate("", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	branchOf := func(g *ca.Generated) *ca.Branch {
		b, err := ca.NewBranch(g.Root, g.RootKey, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b, foreign := branchOf(g), branchOf(other)
	key, err := keyfile.Marshal(b.Key, nil)
	if err != nil {
		t.Fatal(err)
	}
	issuing := strings.TrimSuffix(b.BundlePEM, g.RootPEM)
	for name, tt := range map[string]struct {
		bundle, rootCRL string
		want            string // "" is loaded
	}{
		"as made":                   {b.BundlePEM, b.RootCRLPEM, ""},
		"the root first, with text": {"bundle of agents\n" + g.RootPEM + issuing, "a list\n" + b.RootCRLPEM, ""},
		"one certificate":           {issuing, b.RootCRLPEM, "1 certificates, want the issuing one and the root"},
		"of another root":           {issuing + other.RootPEM, b.RootCRLPEM, "is not signed by"},
		"of another installation":   {foreign.BundlePEM, foreign.RootCRLPEM, "key does not belong to the issuing certificate"},
		"the present authority":     {g.IssuingPEM + g.RootPEM, b.RootCRLPEM, "key does not belong to the issuing certificate"},
		"a list of another root":    {b.BundlePEM, foreign.RootCRLPEM, "not a CRL of the root in the bundle"},
		"no list":                   {b.BundlePEM, "", "not a CRL in PEM"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := func(name, text string, mode os.FileMode) string {
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, []byte(text), mode); err != nil {
					t.Fatal(err)
				}
				return path
			}
			s := puppet.Settings{
				Names:   []string{"puppet.example.net", "192.0.2.1"},
				Bundle:  file("bundle.pem", tt.bundle, 0o644),
				Key:     file("key.pem", string(key), 0o600),
				RootCRL: file("root-crl.pem", tt.rootCRL, 0o644),
			}
			own := ca.Request{Role: wire.RoleProvisioner, Name: "prov1.example.net", ServerAuth: true}
			a, err := s.Load(ca.Config{TrustDomain: "example.net"}, own, &keyfile.Ring{})
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("Load = %v, want %q on one line", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(a.Bundle) != tt.bundle || string(a.RootCRL) != tt.rootCRL {
				t.Error("the bytes have changed")
			}
			if err := a.CheckRootCRL(time.Now().AddDate(9, 0, 0)); err != nil {
				t.Error(err)
			}
			if a.CheckRootCRL(g.Root.NotAfter) == nil {
				t.Error("the root's CRL outlives the root")
			}
			if got := s.Features("https://[::]:8140")["puppet_url"]; got != "https://puppet.example.net:8140" {
				t.Errorf("puppet_url is %v", got)
			}
		})
	}
}
