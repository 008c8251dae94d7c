package daemon

import (
	"slices"
	"testing"
	"time"

	"muster/provisioner"
)

// TestWhichEntryAboutAnOperatorCounts holds entries of journals to what a backup
// has.
func TestWhichEntryAboutAnOperatorCounts(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	entry := func(seconds int, removed bool) *provisioner.OperatorEntry {
		return &provisioner.OperatorEntry{Name: "anna", At: at.Add(time.Duration(seconds) * time.Second), Removed: removed}
	}
	added, removed := entry(0, false), entry(0, true)
	for _, tt := range []struct {
		restored *provisioner.OperatorEntry
		line     *provisioner.OperatorEntry
		marked   bool // counts if it is known to come after the backup
		unmarked bool // counts if it may be older
	}{
		{nil, entry(1, false), true, false},
		{nil, entry(1, true), true, true},
		{added, entry(-1, false), false, false},
		{added, entry(0, false), false, false}, // itself
		{added, entry(1, false), true, true},   // another role, another key
		{added, entry(-1, true), false, false},
		{added, entry(0, true), true, true},
		{added, entry(1, true), true, true},
		{removed, entry(0, false), false, false},
		{removed, entry(1, false), true, false},
		{removed, entry(1, true), true, true},
	} {
		for after, want := range map[bool]bool{true: tt.marked, false: tt.unmarked} {
			if got := (operatorLine{tt.line, after}).counts(tt.restored); got != want {
				t.Errorf("%+v, after the backup: %v: counts after %+v: %v, want %v", tt.line, after, tt.restored, got, want)
			}
		}
	}
	lines := []operatorLine{{removed, true}, {entry(1, false), true}, {added, true}}
	slices.SortStableFunc(lines, operatorLine.compare)
	if lines[0].Removed || !lines[1].Removed || lines[2].At.Equal(at) {
		t.Errorf("in the order %+v, want the removal as the last of its second", lines)
	}
}
