package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/server"
)

// Each slip of an operator leaves the node in its fleet, when the agent runs and when it starts. The log and doctor
// name it.
func TestASlipInServerConfTakesNoMachineOutOfItsFleet(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ line, says string }{
		"comment behind a level":    {"log_level = debug # for now", ""},
		"comment behind a path":     {"facts_file = /nonexistent/facts.json # from puppet", ""},
		"comment behind provision":  {"provision = false # never", ""},
		"comment behind an address": {"srv_domain = # none", ""},
		"unknown level":             {"log_level = loud", "log_level"},
		"interval of a week":        {"alive_interval = 1w", "alive_interval"},
		"interval without a number": {"registration_interval = often", "registration_interval"},
		"provision is neither":      {"provision = maybe", "provision"},
		"malformed identity":        {"identity = web_1!", "identity"},
		"Latin-1 in a comment":      {"# f\xfcr Rack 4", "UTF-8"},
		"Latin-1 in a value":        {"motd = gr\xfc\xdf dich", "UTF-8"},
		"no equals sign":            {"log_level debug", "want `key = value`"},
		"key given twice":           {"facts_file = /a\nfacts_file = /b", "given twice"},
		"misspelled brokers":        {"brokerz = a:1", `did you mean "brokers"`},
		"misspelled provision":      {"provison = false", `did you mean "provision"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			a := f.run(cfg)
			a.await(server.EventConnected, 1)
			writeFile(t, cfg.ConfFile, "brokers = "+f.url()+"\n"+tt.line+"\n")
			a.await(server.EventConnected, 2)
			if err := a.stop(); err != nil {
				t.Fatal(err)
			}
			f.run(cfg).await(server.EventConnected, 1)
			if n := len(f.requests()); n != 1 {
				t.Errorf("%d enrollments, want only the first", n)
			}
			findings, err := server.Doctor(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			said := ""
			for _, x := range findings {
				if x.What == "settings" {
					said = x.Detail
				}
			}
			if tt.says == "" && said != "" || !strings.Contains(said, tt.says) {
				t.Errorf("doctor says %q, want %q", said, tt.says)
			}
			if tt.says != "" && f.countLog("settings in server.conf are not used") == 0 {
				t.Errorf("log:\n%s", f.log.String())
			}
		})
	}
}

// A renewal replaces each file. What a person wrote there is kept beside it, and the log names the copy.
func TestLocalWorkIsKept(t *testing.T) {
	t.Parallel()
	tests := map[string]func(t *testing.T, cfg server.Config) (path, text string){
		"server.conf replaced": func(t *testing.T, cfg server.Config) (string, string) {
			text := readFile(t, cfg.ConfFile) + "# mine\n"
			writeFile(t, cfg.ConfFile, text)
			return cfg.ConfFile, text
		},
		"server.conf edited through the link": func(t *testing.T, cfg server.Config) (string, string) {
			return cfg.ConfFile, edit(t, cfg.ConfFile)
		},
		"ca.pem edited": func(t *testing.T, cfg server.Config) (string, string) {
			path := filepath.Join(cfg.SSLDir, "ca.pem")
			return path, edit(t, path)
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			clock := newClock()
			cfg.Now = clock.now
			a := f.run(cfg)
			a.await(server.EventConnected, 1)
			path, text := change(t, cfg)
			a.await(server.EventConnected, 2)
			clock.advance(25 * day)
			f.awaitLog("local file kept before it is replaced", "path="+path)
			copies, _ := filepath.Glob(path + ".before-*")
			if len(copies) != 1 || readFile(t, copies[0]) != text {
				t.Errorf("copies %v, want one with the text of before", copies)
			}
		})
	}
}

func edit(t *testing.T, path string) string {
	t.Helper()
	text := readFile(t, path) + "# mine\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return text
}
