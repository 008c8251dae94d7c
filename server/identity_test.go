package server_test

import (
	"context"
	"strings"
	"testing"

	"muster/server"
)

// TestAMachineWithoutANameDoesNotEnroll starts an agent before the machine has got its
// name, as may be at a first boot: it would be localhost to the fleet, and once it has a
// name, its own key would be another node's.
func TestAMachineWithoutANameDoesNotEnroll(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("")
	for _, name := range []string{"localhost", "LOCALHOST.", "localhost.localdomain"} {
		cfg.SetMachineName(name)
		s, err := server.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err = s.Run(ctx)
		if err == nil || !strings.Contains(err.Error(), "localhost") || !strings.Contains(err.Error(), "--identity") {
			t.Errorf("%s: Run = %v, want that this is no name, and what to do", name, err)
		}
	}
	if n := len(f.requests()); n > 0 {
		t.Errorf("%d requests as localhost", n)
	}
	cfg.SetMachineName("web1.example.net")
	f.run(cfg).await(server.EventConfirmed, 1)
}
