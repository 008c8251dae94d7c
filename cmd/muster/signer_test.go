package main

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	cmd := command(t, "signer", "remove", "builds", "--config", config)
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "neither the name or id of a signer") {
		t.Errorf("a name that nobody has had: exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
	f.Check()
}
