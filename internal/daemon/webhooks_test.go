package daemon_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/daemon"
)

// webhooks adds a list of webhooks to a setup, and returns the error of loading it.
func webhooks(t *testing.T, yaml string, files map[string]string) error {
	t.Helper()
	dir := install(t, nil)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "open.secret"), []byte("whsec_"+strings.Repeat("A", 40)+"\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "provisioner.yaml")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(string(b)+"\nwebhooks:\n"+yaml), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = daemon.Load(path, daemon.Options{})
	return err
}

// TestMistakesInWebhooksAreListedAtOnce also checks that no secret is shown.
func TestMistakesInWebhooksAreListedAtOnce(t *testing.T) {
	t.Parallel()
	const good = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"
	files := map[string]string{
		"good.secret": "\n" + good + good, "short.secret": "whsec_c2hvcnQ=\n" + good + "hush-plain\n",
		"empty.secret": "\n", "no.pem": "hush-pem",
		"many.secret": strings.Repeat(good, 5),
	}
	if err := webhooks(t, "  - {name: pager, url: 'https://u:p@hooks.example.net/x?y=z', secret: good.secret, "+
		"events: [alarm, io.muster.node], timeout: 30s}\n", files); err != nil {
		t.Errorf("a good webhook: %v", err)
	}
	for name, tt := range map[string]struct {
		yaml string
		want []string
	}{
		"values": {`
  - {name: Pager, url: "http://hooks.example.net/hush-path", secret: good.secret,
     events: [nonsense, alarm, more.of.it], timeout: 500ms}
  - {name: pager, url: "https://hush:hush@/path", secret: missing.secret}
  - {name: pager, url: "https://hooks.example.net/#hush", timeout: 31s, ca: missing.pem}
`, []string{"webhooks[0].name: ", "webhooks[0].url: want https",
			"webhooks[0].events: no event type begins with \"nonsense\"",
			"webhooks[0].events: no event type begins with \"more.of.it\"",
			"webhooks[0].timeout: is 500ms, want 1s to 30s", "webhooks[1].url: ",
			"webhooks[2].name: is \"pager\", which is used twice", "webhooks[2].url: ", "webhooks[2].secret: missing",
			"webhooks[2].timeout: "}},
		"files": {`
  - {name: a, url: "https://hooks.example.net", secret: short.secret}
  - {name: b, url: "https://hooks.example.net", secret: empty.secret, ca: no.pem}
  - {name: e, url: "https://hooks.example.net", secret: missing.secret, ca: missing.pem}
  - {name: c, url: "https://hooks.example.net", secret: open.secret}
  - {name: d, url: "https://hooks.example.net", secret: many.secret}
`, []string{"webhooks[0]: secret: ", "short.secret: line 1, 3: want whsec_", "empty.secret: empty: want whsec_",
			"no.pem: no certificate in PEM",
			"missing.secret: no such file", "missing.pem: no such file", "webhooks[3]: secret: ", "chmod 600",
			"many.secret: 5 secrets, limit 4"}},
		"keys": {"  - {titel: a}\n", []string{"titel"}},
		"too many": {strings.Repeat("  - {name: a, url: \"https://hooks.example.net\", secret: good.secret}\n", 17),
			[]string{"webhooks: has 17, limit 16"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := webhooks(t, tt.yaml, files)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), "hush") {
				t.Errorf("error shows a secret:\n%v", err)
			}
		})
	}
}
