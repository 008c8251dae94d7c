package journal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/jwt"
	"muster/provisioner"
)

// TestAFileThatFailsForGoodIsOpenedAnew has the open file refuse every write, as
// one does whose disk failed and was mounted again since.
func TestAFileThatFailsForGoodIsOpenedAnew(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "revocations.journal")
	j, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	entry := func(id string) *provisioner.Revocation {
		return &provisioner.Revocation{Schema: provisioner.RevocationSchema, ID: id, Kind: provisioner.RevokedToken, At: time.Now().UTC(), Token: "00112233445566778899aabbccddeeff"}
	}
	fail := func() {
		t.Helper()
		f, err := os.Open(path) // for reading
		if err != nil {
			t.Fatal(err)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		_ = j.file.Close()
		j.file = f
	}
	at := time.Now().UTC().Truncate(time.Second)
	removed := &provisioner.SignerEntry{Schema: provisioner.SignerSchema, ID: jwt.SignerID(strings.Repeat("0", 64)), Removed: true, By: "ops", At: at}
	for _, err := range []error{ // what else is remembered is read again as well
		j.Begin(From{Installation: "i", At: at}),
		j.Own(Joined{Provisioner: "p", Journal: "j", At: at}),
		j.AppendSigner(removed),
		j.AppendOperator(&provisioner.OperatorEntry{Schema: provisioner.OperatorSchema, Name: "eve", Removed: true, By: "ops", At: at}),
		j.AppendAllowance(&provisioner.Allowance{Schema: provisioner.AllowanceSchema, ID: "a", Pattern: "web1", Removed: true, At: at, Cause: provisioner.Cause{By: "ops"}}),
		j.Append(entry("a")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	fail()
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(entry("b")); err == nil {
		t.Error("appended to no file")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a new journal was begun")
	}
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.Append(entry("b")); err == nil {
		t.Error("appended to another journal")
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err != nil {
		t.Fatal(err)
	} else if _, err := f.WriteString(`{"half":`); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	// What a failed write left is cut off. The write that finds the file failed
	// is not repeated by itself.
	_ = j.Append(entry("b"))
	if err := j.Append(entry("c")); err != nil {
		t.Fatal(err)
	}
	entries, err := j.Entries()
	if err != nil {
		t.Fatal(err)
	}
	var ids string
	for _, e := range entries {
		ids += e.ID
	}
	if ids != "ac" && ids != "abc" {
		t.Errorf("entries %q, want a, perhaps b, and c", ids)
	}
	if s := j.Signers(); len(s) != 1 || s[0].ID != removed.ID {
		t.Errorf("signers %v, want the one that was removed", s)
	}
	if b, err := os.ReadFile(path); err != nil || string(b[:len(whole)]) != string(whole) {
		t.Errorf("journal = %q, %v, want what it had first", b, err)
	}
}
