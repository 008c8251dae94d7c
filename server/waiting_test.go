package server_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// lastAttempt is what people read in the file of the last attempt.
type lastAttempt struct {
	Code     wire.Code `json:"code"`
	WaitsFor string    `json:"waits_for"`
	Since    time.Time `json:"since"`
	Time     time.Time `json:"time"`
}

func readLast(t *testing.T, cfg server.Config) (l lastAttempt) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.last"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &l); err != nil {
		t.Fatal(err)
	}
	return l
}

// TestANodeThatWaitsSaysSo says once for what it waits and who can help, in the
// log, in its file and by the doctor, however often it asks and is started.
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
			cfg.Rand = func() float64 { return 0 }
			a := f.run(cfg)
			a.await(server.EventRefused, 4)
			first := readLast(t, cfg)
			csr, err := ca.ParseCSR(f.requests()[0].CSR)
			if err != nil {
				t.Fatal(err)
			}
			remedy := strings.ReplaceAll(tt.remedy, "KEY", csr.KeyHash[:16])
			if n := f.countLog(`level=WARN msg="node waits"`, "node=web1.example.net", "code="+string(code), tt.waitsFor, "retry_in=10ms", remedy); n != 1 || f.countLog("node waits") != 1 || f.countLog("enrollment refused") != 0 {
				t.Errorf("said %d times, want once:\n%s", n, f.log.String())
			}
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			a = f.run(cfg)
			a.await(server.EventRefused, 2)
			if l := readLast(t, cfg); l.Code != code || l.WaitsFor != tt.waitsFor || first.Since.IsZero() || !l.Since.Equal(first.Since) {
				t.Errorf("on disk: %+v after a restart, and %+v before", l, first)
			}
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			findings, err := server.Doctor(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			said := false
			for _, finding := range findings {
				if finding.Status == server.StatusFail {
					t.Errorf("the doctor calls it broken: %+v", finding)
				}
				said = said || finding.What == "enrollment" && finding.Status == server.StatusWarn &&
					strings.HasPrefix(finding.Detail, "waits for "+tt.waitsFor+" ("+string(code)+") since "+first.Since.Format(time.RFC3339)) && strings.Contains(finding.Remedy, remedy)
			}
			if !said {
				t.Errorf("the doctor says %+v", findings)
			}
			// Denied now, and then told to wait again: both are news.
			f.set(func() { f.enroll = refuse(wire.CodeDenied, 10*time.Millisecond) })
			a = f.run(cfg)
			f.awaitLog("enrollment refused")
			if l := readLast(t, cfg); l.WaitsFor != "" || !l.Since.IsZero() {
				t.Errorf("denied, on disk: %+v", l)
			}
			f.set(func() { f.enroll = refuse(code, 10*time.Millisecond) })
			f.await("the line again", func() bool { return f.countLog("node waits") == 3 })
			f.set(func() { f.enroll = nil })
			a.await(server.EventConfirmed, 1)
			if _, err := os.Stat(filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.last")); !os.IsNotExist(err) {
				t.Errorf("provisioned, and its file says that it waits: %v", err)
			}
		})
	}
}

// TestAWaitForgetsTheBackoff has a broker be away while a node that has waited
// for long: its next try is a short one, not the longest that all its tries so
// far add up to.
func TestAWaitForgetsTheBackoff(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.enroll = refuse(wire.CodeApprovalPending, time.Millisecond) })
	cfg := f.node("web1.example.net")
	cfg.BackoffMax = time.Hour // 5 ms doubled 20 times
	a := f.run(cfg)
	a.await(server.EventRefused, 25)
	f.stop()
	a.await(server.EventFailed, 1)
	f.set(func() { f.enroll = nil })
	f.start()
	a.await(server.EventConfirmed, 1)
}
