package testbed

import (
	"path/filepath"
	"regexp"
	"slices"

	"muster/internal/setup"
	"muster/provisioner/trust"
)

// caLines are the `ca:` lines of a provisioner.yaml.
var caLines = regexp.MustCompile(`(?m)^ca:\n(?:[ #].*\n)*`)

// Roll changes the certificate authority, writes the lines of `muster ca roll` to provisioner.yaml, and restarts the
// provisioner. It returns the new root's fingerprint.
func (f *Fleet) Roll() string {
	f.t.Helper()
	roll := setup.Maker{Config: filepath.Join(f.Dir, "provisioner.yaml"), Now: f.Clock.Now}
	rolled, err := roll.Roll()
	if err != nil {
		f.t.Fatal(err)
	}
	lines, err := rolled.Lines()
	if err != nil {
		f.t.Fatal(err)
	}
	f.Write("provisioner.yaml", caLines.ReplaceAllLiteralString(f.Read("provisioner.yaml"), lines))
	f.Stop()
	f.Start()
	return rolled.Fingerprint
}

// OnCRLOf reports whether the newest CRL of the issuer with the key id names the
// certificate.
func (f *Fleet) OnCRLOf(issuer, serial string) bool {
	f.t.Helper()
	return slices.ContainsFunc(f.daemon.CRLs(), func(c *trust.CRL) bool {
		return c.Issuer == issuer && onCRL(f.t, c, serial)
	})
}
