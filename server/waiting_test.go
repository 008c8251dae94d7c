package server_test

import (
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// TestANodeThatWaitsSaysSo says once for what it waits and who can help, in the
// log, however often it asks.
func TestANodeThatWaitsSaysSo(t *testing.T) {
	t.Parallel()
	tests := map[wire.Code]struct{ waitsFor, remedy string }{
		wire.CodeApprovalPending: {"an operator's approval", "an operator lets it in with `muster node approve web1.example.net --key KEY`"},
		wire.CodeDeferred:        {"the policy, which puts it off", "`muster node pending --details --prefix web1.example.net` says why"},
	}
	for code, tt := range tests {
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
			remedy := strings.ReplaceAll(tt.remedy, "KEY", csr.KeyHash[:16])
			if n := f.countLog(`level=WARN msg="node waits"`, "node=web1.example.net", "code="+string(code), tt.waitsFor, "retry_in=10ms", remedy); n != 1 || f.countLog("node waits") != 1 || f.countLog("enrollment refused") != 0 {
				t.Errorf("said %d times, want once:\n%s", n, f.log.String())
			}
			// Denied now, and then told to wait again: both are news.
			f.set(func() { f.enroll = refuse(wire.CodeDenied, 10*time.Millisecond) })
			f.awaitLog("enrollment refused")
			f.set(func() { f.enroll = refuse(code, 10*time.Millisecond) })
			f.await("the line again", func() bool { return f.countLog("node waits") == 2 })
			f.set(func() { f.enroll = nil })
			a.await(server.EventConfirmed, 1)
		})
	}
}
