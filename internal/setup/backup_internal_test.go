package setup

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/provisioner/backup"
)

// TestBackupsOfLaterVersionsDifferFromDamagedOnes has a backup whose record this version
// cannot read, which no other try mends, and one that was broken off.
func TestBackupsOfLaterVersionsDifferFromDamagedOnes(t *testing.T) {
	t.Parallel()
	var file bytes.Buffer
	now := time.Now().UTC().Truncate(time.Second)
	w, err := backup.NewWriter(&file,
		backup.Header{ID: "b1", Installation: "i1", CAFingerprint: strings.Repeat("a", 64), StartedAt: now, By: "root"})
	if err == nil {
		err = w.Message("MUSTER_NODES", 7, "muster.node.web1", []byte(`{"version":99}`))
	}
	if err == nil {
		_, err = w.Close(now)
	}
	if err != nil {
		t.Fatal(err)
	}
	whole := file.Bytes()
	_, err = CheckBackup(t.Context(), bytes.NewReader(whole), func() {})
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "stream MUSTER_NODES: sequence 7: ") {
		t.Errorf("of another version: %v", err)
	}
	_, err = CheckBackup(t.Context(), bytes.NewReader(whole[:len(whole)-40]), func() {})
	if !errors.Is(err, backup.ErrDamaged) || errors.Is(err, ErrUnknown) {
		t.Errorf("cut: %v", err)
	}
}
