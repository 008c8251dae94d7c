package daemon_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/jwt"
)

func TestTemplatesThatCannotBeFilled(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		template string
		facts    any
	}{
		"a fact that the node does not have":  {"role = {{ .Facts.role }}\n", map[string]string{"rule": "web"}},
		"a fact of a node without any":        {"role = {{ .Facts.role }}\n", nil},
		"a fact within one that is not there": {"role = {{ .Facts.os.name }}\n", map[string]string{}},
		"an extension that the token lacks":   {"rack = {{ .Extensions.rack }}\n", nil},
		"a member of text": {"role = {{ .Facts.role.name }}\n",
			map[string]string{"role": "web"}},
		"an index beyond the end": {"disk = {{ index .Facts.disks 1 }}\n",
			map[string][]string{"disks": {"sda"}}},
		"a line that is no setting": {"identity = {{ .Identity }}\n{{ .Facts.role }}\n",
			map[string]string{"role": "web"}},
		"nothing at all": {"# {{ .Identity }}\n", nil},
		"a setting twice, by a fact's line break": {"identity = {{ .Identity }}\nrole = {{ .Facts.role }}\n",
			map[string]string{"role": "web\nidentity = evil"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := testbed.New(t, testbed.Options{Template: tt.template})
			n := f.Node("web1.example.net")
			if tt.facts != nil {
				n.Facts = testbed.Facts(t, tt.facts)
			}
			if got := f.Refused(n); got != wire.CodeConfigurationFailed {
				t.Errorf("refused as %s, want %s", got, wire.CodeConfigurationFailed)
			}
			if r := f.Record(n.Identity); r != nil {
				t.Errorf("record = %+v", r)
			}
			f.Check()
		})
	}
}

func TestTemplateInput(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{Edit: func(c *daemon.Config) { c.Site = "ams1" },
		Template: `identity = {{ .Identity }}
hostname = {{ .Hostname }}
domain = {{ .Domain }}
role = {{ .Facts.role }}
serial = {{ .Facts.serial }}
site = {{ .Site }}
org = {{ .Org }}
urls = {{ join .URLs "," }}
srv = {{ .SRVDomain }}
rack = {{ .Extensions.rack }}
`})
	n, err := simnode.New("web1.example.net", f.Token(func(c *jwt.Claims) {
		c.Brokers, c.Organization = "a.example.net:4222,b.example.net:4222", "acme"
		c.Extensions = map[string]json.RawMessage{"rack": json.RawMessage(`"r12"`)}
		if err := c.SetLimits(jwt.Limits{Site: "ams1"}); err != nil {
			t.Error(err)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	n.Facts = []byte(`{"role":"web","serial":12345678901234567890}`)
	want := map[string]string{"identity": "web1.example.net", "hostname": "web1", "domain": "example.net",
		"role": "web", "serial": "12345678901234567890",
		"site": "ams1", "org": "acme", "srv": "", "rack": "r12"}
	got := f.Enroll(n).Configuration
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s = %q, want %q", k, got[k], v)
		}
	}
	if u := got["urls"]; strings.Count(u, ",") != 1 || !strings.Contains(u, "a.example.net") ||
		!strings.Contains(u, "b.example.net") {
		t.Errorf("urls = %q", u)
	}
	f.Check()
}

func TestABrokenTemplateStopsTheStart(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{"an open action": "a = {{ .Identity\n",
		"an unknown function": "a = {{ shell .Identity }}\n"} {
		dir := install(t, nil)
		if err := os.WriteFile(filepath.Join(dir, "server.conf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := daemon.Load(filepath.Join(dir, "provisioner.yaml"), daemon.Options{}); err == nil ||
			!strings.Contains(err.Error(), "server.conf") {
			t.Errorf("Load with %s = %v", what, err)
		}
	}
}
