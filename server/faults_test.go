package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/server"
)

// faultIn returns the faults in the newest lifecycle event of a type.
func (f *fleet) faultIn(typ string) string {
	all := f.lifecycle(typ)
	if len(all) == 0 {
		return "no event"
	}
	return all[len(all)-1].Data.Fault
}

// Each case breaks one thing of a connected agent, and mends it. The agent reports both over its connection at once,
// and never leaves it to enroll again.
func TestAConnectedAgentReportsWhatKeepsItFromRenewing(t *testing.T) {
	t.Parallel()
	large := `{"a":"` + strings.Repeat("x", wire.MaxFactsBytes) + `"}`
	tests := map[string]struct {
		harm, mend func(*testing.T, *broken)
		want       []string
	}{
		"facts too large": {
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.FactsFile, large) },
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.FactsFile, `{"site":"fra"}`) },
			[]string{"facts: ", "too large: 131080 bytes, limit 131072"},
		},
		"facts larger than the agent reads": {
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.FactsFile, strings.Repeat(" ", 2<<20)) },
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.FactsFile, `{"site":"fra"}`) },
			[]string{"facts: ", "too large: 2097152 bytes"},
		},
		"facts malformed": {
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.FactsFile, `{"site":`) },
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.FactsFile, `{"site":"fra"}`) },
			[]string{"facts: "},
		},
		"facts removed": {
			func(t *testing.T, b *broken) { remove(t, b.cfg.FactsFile) },
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.FactsFile, `{"site":"fra"}`) },
			[]string{"facts: ", "no such file"},
		},
		"server.conf cut short": {
			func(t *testing.T, b *broken) {
				remove(t, b.cfg.ConfFile)
				writeFile(t, b.cfg.ConfFile, "# muster settings, complete only with the line that ends them\nbro")
			},
			func(t *testing.T, b *broken) {
				writeFile(t, b.cfg.ConfFile, "brokers = "+b.f.url()+"\n")
			},
			[]string{"files: ", "server.conf"},
		},
		"server.conf contradicts itself": {
			func(t *testing.T, b *broken) {
				writeFile(t, b.cfg.ConfFile, "provision = true\nplugin.choria.server.provision = false\n")
			},
			func(t *testing.T, b *broken) {
				writeFile(t, b.cfg.ConfFile, "brokers = "+b.f.url()+"\n")
			},
			[]string{"files: ", "provision = true and provision = false"},
		},
		"brokers of server.conf that nothing serves": {
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.ConfFile, "brokers = 127.0.0.1:1\n") },
			func(t *testing.T, b *broken) { writeFile(t, b.cfg.ConfFile, "brokers = "+b.f.url()+"\n") },
			[]string{"files: brokers of server.conf: ", "127.0.0.1:1"},
		},
		"directory open to other users": {
			func(t *testing.T, b *broken) { chmod(t, b.cfg.SSLDir, 0o777) },
			func(t *testing.T, b *broken) { chmod(t, b.cfg.SSLDir, 0o700) },
			[]string{"files: ", "mode 0777 lets other users change it"},
		},
		"a directory where a link belongs": {
			func(t *testing.T, b *broken) {
				remove(t, filepath.Join(b.cfg.SSLDir, "policies"))
				writeFile(t, filepath.Join(b.cfg.SSLDir, "policies", "my.policy"), "")
			},
			func(t *testing.T, b *broken) { _ = os.RemoveAll(filepath.Join(b.cfg.SSLDir, "policies")) },
			[]string{"disk: ", "policies: cannot be replaced: it is a directory"},
		},
		"key exposed": {
			func(t *testing.T, b *broken) { chmod(t, b.key(), 0o644) },
			func(t *testing.T, b *broken) { chmod(t, b.key(), 0o600) },
			[]string{"files: ", "private.pem"},
		},
		"clock a year ahead": {
			func(t *testing.T, b *broken) { b.clock.advance(365 * day) },
			func(t *testing.T, b *broken) { b.clock.advance(-365 * day) },
			[]string{"clock: ", "the broker still admits it"},
		},
		"directory takes no files": {
			func(t *testing.T, b *broken) {
				probe := filepath.Join(b.cfg.SSLDir, ".probe")
				b.f.await("place", func() bool { return os.MkdirAll(filepath.Join(probe, "x"), 0o700) == nil })
			},
			func(t *testing.T, b *broken) { _ = os.RemoveAll(filepath.Join(b.cfg.SSLDir, ".probe")) },
			[]string{"disk: "},
		},
		"renewal refused for good": {
			func(t *testing.T, b *broken) {
				b.f.set(func() {
					b.f.renew = func(r *wire.RenewRequest) *wire.Reply {
						return &wire.Reply{ID: r.ID, Refusal: &wire.Refusal{Code: wire.CodeDenied}}
					}
				})
				b.clock.advance(23 * day)
			},
			func(t *testing.T, b *broken) { b.f.set(func() { b.f.renew = nil }) },
			[]string{"renewal: denied: the policy does not admit"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			b := &broken{f: f, cfg: f.node("web1.example.net"), clock: newClock()}
			b.cfg.Now = b.clock.now
			b.cfg.BackoffMin, b.cfg.BackoffMax = time.Millisecond, 10*time.Millisecond
			b.cfg.FactsFile = filepath.Join(t.TempDir(), "facts.json")
			b.cfg.SetRandom(func() float64 { return 1 }) // no alive event but those about faults
			writeFile(t, b.cfg.FactsFile, `{"site":"ams"}`)
			a := f.run(b.cfg)
			a.await(server.EventConnected, 1)
			f.await("startup", func() bool { return len(f.lifecycle("startup")) == 1 })
			tt.harm(t, b)
			f.await("report", func() bool { return containsAll(f.faultIn("alive"), tt.want) })
			tt.mend(t, b)
			f.await("end of the report", func() bool { return f.faultIn("alive") == "" })
			if n := len(f.requests()); n != 1 {
				t.Errorf("%d enrollments, want only the first", n)
			}
		})
	}
}

type broken struct {
	f     *fleet
	cfg   server.Config
	clock *testClock
}

func (b *broken) key() string { return filepath.Join(b.cfg.SSLDir, "private.pem") }

func containsAll(text string, parts []string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}
