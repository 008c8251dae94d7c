package server_test

import (
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// The node logs once that it waits and what helps.
func TestAPendingNodeLogsTheRemedyOnce(t *testing.T) {
	t.Parallel()
	tests := map[wire.Code]string{
		wire.CodeApprovalPending: "ask an operator to run `muster node approve web1.example.net --fingerprint KEY`",
		wire.CodeDeferred:        "`muster node pending -o wide --prefix web1.example.net` shows why",
	}
	for code, says := range tests {
		t.Run(string(code), func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.set(func() { f.enroll = refuse(code, 10*time.Millisecond) })
			cfg := f.node("web1.example.net")
			cfg.SetRandom(func() float64 { return 0 })
			a := f.run(cfg)
			a.await(server.EventRefused, 4)
			csr, err := ca.ParseCSR(f.requests()[0].CSR)
			if err != nil {
				t.Fatal(err)
			}
			remedy := strings.ReplaceAll(says, "KEY", csr.KeyHash[:16])
			if n := f.countLog(`level=WARN msg="enrollment refused"`, "node=web1.example.net", "code="+string(code),
				"retry_in=10ms", remedy); n != 1 || f.countLog("enrollment refused") != 1 {
				t.Errorf("said %d times, want once:\n%s", n, f.log.String())
			}
			// Denied, then told to wait again: both are logged.
			f.set(func() { f.enroll = refuse(wire.CodeDenied, 10*time.Millisecond) })
			f.await("the other refusal", func() bool { return f.countLog("enrollment refused") == 2 })
			f.set(func() { f.enroll = refuse(code, 10*time.Millisecond) })
			f.await("the line again", func() bool { return f.countLog("enrollment refused") == 3 })
			f.set(func() { f.enroll = nil })
			a.await(server.EventConfirmed, 1)
		})
	}
}
