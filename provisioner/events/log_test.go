package events_test

import (
	"strings"
	"testing"

	"muster/provisioner/events"
)

// TestCursors encodes and parses cursors.
func TestCursors(t *testing.T) {
	t.Parallel()
	want := events.Cursor{Events: 1, Attempts: 18446744073709551615, Lifecycle: 3, Alive: 4}
	if got, err := events.ParseCursor(want.String()); got != want || err != nil {
		t.Errorf("%s is read as %s, %v", want, got, err)
	}
	for _, s := range []string{"", "1", "1-", "1-2", "-1-2", "1-2-", "1-2-3", "1-2-3-4-5", "1-x-3-4",
		"1-2-3-18446744073709551616", strings.Repeat("1-", 1000)} {
		if got, err := events.ParseCursor(s); err == nil {
			t.Errorf("%.64q is read as %s", s, got)
		} else if len(err.Error()) > 200 {
			t.Errorf("%.64q is refused in %d bytes", s, len(err.Error()))
		}
	}
}
