package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestTheSiteExamples runs the examples of nodes that are not beside their
// provisioner.
func TestTheSiteExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	tests := map[string][]string{ // what each prints in the end
		"sites":     {"web1 was enrolled by the provisioner of its site", "web2 was enrolled by the hub's"},
		"websocket": {"web1 enrolled and joined the fleet through wss://"},
	}
	for name, wants := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "../../examples/"+name+"/run.sh")
			cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it has processes to end
			cmd.Env = append(os.Environ(), "PORT=4220", "MUSTER="+binary(t), "TMPDIR="+t.TempDir(),
				fmt.Sprintf("ADDRESS=127.%d.%d.1", 1+rand.IntN(250), 1+rand.IntN(250)))
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("run.sh: %v\n%s", err, out)
			}
			for _, want := range wants {
				if !strings.Contains(string(out), want) {
					t.Errorf("run.sh does not print %q:\n%s", want, out)
				}
			}
		})
	}
}
