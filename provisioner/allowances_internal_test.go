package provisioner

import (
	"log/slog"
	"testing"
	"time"
)

// TestWhatWasReadBeforeItWasRemoved has a request take in who has used an entry of the
// allow-list that was read before it was removed, or replaced: it stays so.
func TestWhatWasReadBeforeItWasRemoved(t *testing.T) {
	t.Parallel()
	as := newAllowances(nil, nil, func() error { return nil }, slog.New(slog.DiscardHandler))
	first := &Allowance{ID: "1", Pattern: "web*", Uses: 3, At: time.Unix(1, 0)}
	used := *first
	used.UsedBy = []AllowanceUse{{Identity: "web1", KeyHash: "k"}}
	as.apply(first)
	as.used(&used)
	if kept := as.kept["web*"]; kept != &used {
		t.Errorf("kept %+v, want its use", kept)
	}
	as.used(first)
	if kept := as.kept["web*"]; kept != &used {
		t.Errorf("kept %+v, want no use forgotten", kept)
	}
	second := &Allowance{ID: "2", Pattern: "web*", At: time.Unix(2, 0)}
	as.apply(second)
	as.used(&used)
	if kept := as.kept["web*"]; kept != second {
		t.Errorf("kept %+v, want the one that has replaced it", kept)
	}
	as.apply(&Allowance{ID: "2", Pattern: "web*", At: time.Unix(3, 0), Removed: true})
	as.used(second)
	if kept := as.kept["web*"]; kept != nil {
		t.Errorf("kept %+v after it was removed", kept)
	}
}
