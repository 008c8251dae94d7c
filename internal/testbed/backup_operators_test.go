package testbed_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/jwt"
	"muster/provisioner"
)

// operators is a fleet's list of them.
type operators struct {
	t *testing.T
	f *testbed.Fleet
}

// add adds an operator, or changes their role, with a new key.
func (o *operators) add(name string, role provisioner.OperatorRole) {
	o.t.Helper()
	if _, err := o.f.Daemon().Operator().AddOperator(o.f.Context(), provisioner.NewOperator{Name: name, Role: role, Public: o.key()}, testbed.Operator()); err != nil {
		o.t.Fatal(err)
	}
}

// key returns a public key that nobody has.
func (o *operators) key() []byte {
	o.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		o.t.Fatal(err)
	}
	public, err := jwt.MarshalPublicKey(key.Public())
	if err != nil {
		o.t.Fatal(err)
	}
	return public
}

func (o *operators) remove(name string) {
	o.t.Helper()
	if err := o.f.Daemon().Operator().RemoveOperator(o.f.Context(), name, testbed.Operator()); err != nil {
		o.t.Fatal(err)
	}
}

// are returns who may come in, as "name role".
func (o *operators) are() map[string]provisioner.OperatorRole {
	o.t.Helper()
	list, err := o.f.Daemon().Operator().ListOperators(o.f.Context())
	if err != nil {
		o.t.Fatal(err)
	}
	in := make(map[string]provisioner.OperatorRole)
	for _, i := range list {
		if !i.Removed {
			in[i.Name] = i.Role
		}
	}
	return in
}

// TestOperatorsAfterARestore removes operators, lowers a role and changes a key
// after a backup, and signers likewise. Neither a restore gives back what was
// taken from them, with or without a journal that knows of the backup, nor does
// putting back the store's files.
func TestOperatorsAfterARestore(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	for name, late := range map[string]bool{"restored": true, "restored without the line of the backup": false, "files put back": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{})
			o := &operators{t, f}
			for _, who := range []string{"anna", "ben", "carl", "dora"} {
				o.add(who, provisioner.RoleAdmin)
			}
			signer, err := f.Daemon().Operator().AddSigner(f.Context(), provisioner.NewSigner{Name: "build", Public: o.key()}, testbed.Operator())
			if err != nil {
				t.Fatal(err)
			}
			file := backUp(t, f)
			files := filepath.Join(t.TempDir(), "broker")
			store := filepath.Join(f.Dir, "data", "broker")
			f.Stop()
			if err := os.CopyFS(files, os.DirFS(store)); err != nil {
				t.Fatal(err)
			}
			f.Start()
			o.remove("anna")
			o.add("ben", provisioner.RoleViewer)
			o.remove("carl")
			o.add("carl", provisioner.RoleOperator) // in the same second
			o.remove("carl")
			o.add("late", provisioner.RoleViewer)
			o.add("gone", provisioner.RoleAdmin)
			o.remove("gone")
			if _, err := f.Daemon().Operator().RemoveSigner(f.Context(), signer.ID, testbed.Operator()); err != nil {
				t.Fatal(err)
			}
			switch name {
			case "restored":
				restore(t, f, file, time.Time{})
			case "files put back":
				f.Stop()
				if err := errors.Join(os.RemoveAll(store), os.CopyFS(store, os.DirFS(files))); err != nil {
					t.Fatal(err)
				}
				f.Start()
				f.Restored()
			default:
				f.Stop()
				text, err := os.ReadFile(journalOf(f))
				if err != nil {
					t.Fatal(err)
				}
				kept := slices.DeleteFunc(strings.SplitAfter(string(text), "\n"), func(line string) bool { return strings.Contains(line, `"backup":`) })
				if err := os.WriteFile(journalOf(f), []byte(strings.Join(kept, "")), 0o600); err != nil {
					t.Fatal(err)
				}
				restore(t, f, file, time.Unix(1, 0))
			}
			check := func(when string) {
				t.Helper()
				want := map[string]provisioner.OperatorRole{"ben": provisioner.RoleViewer, "dora": provisioner.RoleAdmin}
				if late { // nobody comes in by a journal of which it is not known how it goes with the store
					want["late"] = provisioner.RoleViewer
				}
				if got := o.are(); !maps.Equal(got, want) {
					t.Errorf("%s: operators %v, want %v", when, got, want)
				}
				list, err := f.Daemon().Operator().ListSigners(f.Context())
				if err != nil || !slices.ContainsFunc(list, func(s provisioner.SignerInfo) bool { return s.ID == signer.ID && s.Removed }) {
					t.Errorf("%s: a removed signer is good again: %+v, %v", when, list, err)
				}
			}
			check("after it")
			before := entries(t, f)
			f.Stop()
			f.Start()
			check("after another start")
			if after := entries(t, f); after != before {
				t.Errorf("%s of operators and signers after another start, want %s", after, before)
			}
			// Who was removed comes in if an admin says so.
			o.add("anna", provisioner.RoleViewer)
			f.Stop()
			f.Start()
			if got := o.are()["anna"]; got != provisioner.RoleViewer {
				t.Errorf("added again: %q", got)
			}
			f.Check()
		})
	}
}

// entries counts what the store has of operators and signers.
func entries(t *testing.T, f *testbed.Fleet) string {
	t.Helper()
	operators, signers := 0, 0
	for at := provisioner.Sequence(0); ; operators++ {
		e, next, err := f.Daemon().Store().NextOperator(f.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		at = next
	}
	for at := provisioner.Sequence(0); ; signers++ {
		e, next, err := f.Daemon().Store().NextSigner(f.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			return fmt.Sprint(operators, " and ", signers)
		}
		at = next
	}
}

// TestTimesSayWhichEntryIsTheLast changes an operator while the clock is taken
// back, as a provisioner does whose clock is behind that of another: a restore
// goes by the times.
func TestTimesSayWhichEntryIsTheLast(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	o := &operators{t, f}
	o.add("anna", provisioner.RoleAdmin)
	f.Clock.Advance(-4 * time.Minute)
	o.remove("anna")
	o.add("anna", provisioner.RoleViewer)
	o.remove("anna")
	last := time.Time{}
	for at := provisioner.Sequence(0); ; {
		e, next, err := f.Daemon().Store().NextOperator(f.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if e == nil {
			break
		}
		if !e.At.After(last) {
			t.Errorf("an entry of %v follows one of %v", e.At, last)
		}
		at, last = next, e.At
	}
}
