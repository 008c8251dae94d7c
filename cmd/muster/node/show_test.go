package node

import (
	"strings"
	"testing"
	"time"

	"muster/provisioner"
	"muster/provisioner/fleet"
)

func TestShowHasTheLastRun(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	report := &fleet.Report{Record: &provisioner.Record{Identity: "web1.example.net"}}
	if text := show(nil, report).String(); strings.Contains(text, "Last run") {
		t.Errorf("a run of an agent that reports none: %s", text)
	}
	report.Run = &fleet.Run{
		At:        at,
		Status:    fleet.RunFailed,
		Noop:      true,
		Resources: fleet.RunCounts{Total: 9, Failed: 1},
		Errors:    []string{"no space left"},
		LeftOut:   7,
		Since:     at.Add(-time.Hour),
	}
	text := strings.Join(strings.Fields(show(nil, report).String()), " ")
	for _, want := range []string{
		"Last run: failed (noop) 2026-11-30T09:00:00Z 9 resources: 0 out of sync, 0 changed, 1 failed, 0 skipped",
		"Failing since: 2026-11-30T08:00:00Z", "Error: no space left", "and 7 more",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in: %s", want, text)
		}
	}
}
