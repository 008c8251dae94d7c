package testbed

import (
	"os"
	"path/filepath"
	"regexp"

	"muster/internal/setup"
)

// caLines are the lines of `ca:` in a provisioner.yaml.
var caLines = regexp.MustCompile(`(?m)^ca:\n(?:[ #].*\n)*`)

// Roll rolls the certificate authority over, puts the lines of `muster ca roll` into provisioner.yaml,
// and restarts the provisioner. It returns the new root's fingerprint.
func (f *Fleet) Roll() string {
	f.t.Helper()
	roll := setup.Roll{Config: filepath.Join(f.Dir, "provisioner.yaml"), Now: f.Clock.Now}
	rolled, err := roll.Make()
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

// Read returns what a file of the setup holds.
func (f *Fleet) Read(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.Dir, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return string(b)
}
