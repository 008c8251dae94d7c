package testbed

import (
	"os"
	"path/filepath"

	"muster/internal/daemon"
	"muster/internal/setup"
)

// Roll rolls the certificate authority over, as `muster ca roll --write` does,
// and restarts the provisioner. It returns the new root's fingerprint.
func (f *Fleet) Roll() string {
	f.t.Helper()
	roll := setup.Roll{Config: filepath.Join(f.Dir, "provisioner.yaml"), Now: f.Clock.Now}
	rolled, err := roll.Make()
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := rolled.Write(daemon.Options{Now: f.Clock.Now}); err != nil {
		f.t.Fatal(err)
	}
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
