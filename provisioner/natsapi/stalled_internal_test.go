package natsapi

import (
	"testing"

	"muster/internal/wire"
)

// TestOnlyTheStoreStalls: what is refused for any other reason was served, and counts
// for the pace, unless it was sent away before anything was done for it.
func TestOnlyTheStoreStalls(t *testing.T) {
	t.Parallel()
	for code, want := range map[wire.Code]bool{wire.CodeStoreUnavailable: true, wire.CodeUnavailable: false, wire.CodeDenied: false} {
		if got := stalled(&wire.Reply{Refusal: &wire.Refusal{Code: code}}); got != want {
			t.Errorf("%s: stalled %v", code, got)
		}
	}
	for code, want := range map[wire.Code]bool{wire.CodeBusy: true, wire.CodeUnavailable: false} {
		if got := sentAway(&wire.Reply{Refusal: &wire.Refusal{Code: code}}); got != want {
			t.Errorf("%s: sent away %v", code, got)
		}
	}
	if sentAway(&wire.Reply{Enrolled: &wire.Enrolled{}}) {
		t.Error("an enrolled node was sent away")
	}
	if stalled(&wire.Reply{Enrolled: &wire.Enrolled{}}) {
		t.Error("an enrolled node was stalled")
	}
}
