package daemon

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/helper"
)

// TestHelperSeesWhatAChoriaServerSaid: the helper of Choria's provisioner makes paths of it.
func TestHelperSeesWhatAChoriaServerSaid(t *testing.T) {
	t.Parallel()
	key := make(ed25519.PublicKey, ed25519.PublicKeySize)
	request, err := ca.KeyRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script, input := filepath.Join(dir, "helper.sh"), filepath.Join(dir, "input")
	text := `cat > "$1"; echo '{"configuration": {"loglevel": "info"}}'`
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := helper.New(helper.Config{Command: []string{"/bin/sh", script, input}, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	const inventory = `{"facts":{"role":"web"},"version":"0.30.2"}`
	files, err := helperConfigurator{h}.Configure(t.Context(), provisioner.Subject{
		Input: &policies.Input{Identity: "web1.example.net"},
		Edge:  &provisioner.Edge{Key: request, Directory: "/etc/choria", Inventory: json.RawMessage(inventory)},
	})
	if err != nil || files.Configuration["loglevel"] != "info" {
		t.Errorf("files %v, %v", files, err)
	}
	b, err := os.ReadFile(input)
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		CSR *struct{}         `json:"csr"`
		Key map[string]string `json:"ed25519_pubkey"`
		Raw string            `json:"inventory"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		t.Fatal(err)
	}
	if in.CSR != nil || in.Key["public_key"] != hex.EncodeToString(key) || in.Key["directory"] != "/etc/choria" ||
		in.Raw != inventory {
		t.Errorf("the helper sees %s", b)
	}
}
