package setup_test

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/daemon"
	"muster/internal/inputfile"
	"muster/internal/keyfile"
	"muster/internal/setup"
	"muster/internal/testdoc"
	"muster/internal/testproc"
	"muster/internal/wire"
)

var update = flag.Bool("update", false, "rewrite the generated documents")

// install makes a setup for a provisioner on any free port.
func install(t *testing.T, edit func(*setup.Installation)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "provisioner")
	s := setup.Installation{Name: "prov1.example.net", TrustDomain: "example.net", Listen: "127.0.0.1:0"}
	if edit != nil {
		edit(&s)
	}
	if err := setup.Init(dir, s); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestInitMakesAWorkingSetup(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*setup.Installation){
		"default":         nil,
		"trust first use": func(s *setup.Installation) { s.TrustFirstUse = true },
		"everything": func(s *setup.Installation) {
			s.Site, s.BrokerNames, s.Addresses = "ams1", []string{"a.example.net",
				"b.example.net"}, []string{"192.0.2.1", "2001:db8::1"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := install(t, edit)
			want := []string{"provisioner.yaml", "signer-key.pem", "signer.pem", "ca/root.pem", "ca/root-key.pem",
				"ca/issuing.pem", "ca/issuing-key.pem",
				"seal-key.pem", "seal.pub", "server.conf", "policy", "data"}
			for _, f := range want {
				if _, err := os.Stat(filepath.Join(dir, f)); err != nil {
					t.Errorf("%s: %v", f, err)
				}
			}
			err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
				if err == nil && strings.HasSuffix(path, "-key.pem") {
					_, err = keyfile.ReadSecret(path, inputfile.Configured)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			d, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{})
			if err != nil {
				t.Fatalf("the setup does not load: %v", err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := d.Run(ctx, cancel); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// TestInitGivesTheSetupToTheOwnerOfItsData: of a package's data directory, the service's user.
func TestInitGivesTheSetupToTheOwnerOfItsData(t *testing.T) {
	t.Parallel()
	testproc.NeedsRoot(t)
	data := t.TempDir()
	if err := errors.Join(os.Chown(data, 1234, 1234), os.Chmod(data, 0o700)); err != nil {
		t.Fatal(err)
	}
	dir := install(t, func(s *setup.Installation) { s.DataDir = data })
	for _, name := range []string{"", "ca", "ca/issuing-key.pem", "policy", "provisioner.yaml"} {
		if owner := inputfile.OwnerOf(filepath.Join(dir, name)); owner != 1234 {
			t.Errorf("the owner of %s is %d", name, owner)
		}
	}
	cfg, err := daemon.ReadConfig(filepath.Join(dir, "provisioner.yaml"))
	if err != nil || cfg.DataDir != data {
		t.Errorf("data_dir is %s, want %s: %v", cfg.DataDir, data, err)
	}
}

// TestInitExplainsEveryKey holds the commented configuration to the struct: no
// key is missing from it, as a setting or as a comment.
func TestInitExplainsEveryKey(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(install(t, nil), "provisioner.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var keys func(reflect.Type) []string
	keys = func(typ reflect.Type) []string {
		var all []string
		for f := range fieldsOf(typ) {
			if key := f.Tag.Get("yaml"); key != ",inline" {
				all = append(all, key)
			}
			elem := f.Type
			if elem.Kind() == reflect.Slice {
				elem = elem.Elem()
			}
			if elem.Kind() == reflect.Struct {
				all = append(all, keys(elem)...)
			}
		}
		return all
	}
	for _, key := range keys(reflect.TypeFor[daemon.Config]()) {
		if !regexp.MustCompile(`(?m)^[\s#-]*` + regexp.QuoteMeta(key) + `:`).Match(b) {
			t.Errorf("provisioner.yaml does not show %s", key)
		}
	}
}

// TestConfigurationIsDocumented holds docs/reference/provisioner.yaml.md to what init writes.
func TestConfigurationIsDocumented(t *testing.T) {
	t.Parallel()
	dir := install(t, func(s *setup.Installation) { s.Listen = "" })
	b, err := os.ReadFile(filepath.Join(dir, "provisioner.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	testdoc.Generated(t, "../../docs/reference/provisioner.yaml.md", *update, "```yaml\n"+string(b)+"```\n")
}

func fieldsOf(t reflect.Type) func(func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range t.NumField() {
			if t.Field(i).IsExported() && !yield(t.Field(i)) {
				return
			}
		}
	}
}

func TestInitNeverOverwrites(t *testing.T) {
	t.Parallel()
	good := setup.Installation{Name: "prov1.example.net", TrustDomain: "example.net"}
	t.Run("a directory with something in it", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "precious"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := setup.Init(dir, good); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("Init = %v", err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("left %v", entries)
		}
	})
	t.Run("nor leaves anything after a mistake", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		err := setup.Init(filepath.Join(dir, "p"),
			setup.Installation{Name: "Prov", TrustDomain: "..", Listen: "nonsense"})
		if err == nil || !errors.Is(err, wire.ErrIdentity) {
			t.Errorf("Init = %v", err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 0 {
			t.Errorf("left %v", entries)
		}
	})
	t.Run("and refuses a name that its output cannot show in one line", func(t *testing.T) {
		t.Parallel()
		err := setup.Init(filepath.Join(t.TempDir(), "a\nb"), good)
		if err == nil || !strings.Contains(err.Error(), "control character") {
			t.Errorf("Init = %v", err)
		}
	})
	t.Run("but fills an empty one", func(t *testing.T) {
		t.Parallel()
		if err := setup.Init(t.TempDir(), good); err != nil {
			t.Error(err)
		}
	})
}
