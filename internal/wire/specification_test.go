package wire_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
)

type files = map[string]wire.SpecificationFile

// edited changes one file of a specification.
func edited(name string, edit func(*wire.SpecificationFile)) func(*wire.Specification) {
	return func(s *wire.Specification) {
		f := s.Files[name]
		edit(&f)
		s.Files[name] = f
	}
}

// specification returns one that a node can follow.
func specification() *wire.Specification {
	return &wire.Specification{
		Network: "internal", DNSNames: []string{"{{.identity}}", "{{ .facts.networks.internal.fqdn }}", "www.example.net"},
		IPAddresses: []string{"192.0.2.1"}, URIs: []string{"https://www.example.net/"}, Usages: []string{"server", "client"},
		Files: files{
			"key": {Path: "/etc/muster/tls/www.key"}, "certificate": {Path: "/etc/muster/tls/www.pem"},
			"combined": {Path: "/etc/haproxy/www.pem", Owner: "root", Group: "haproxy", Mode: "0640",
				Order: []string{"certificate", "chain", "ca", "key"}},
		},
		Renew: "10d", Action: "reload-haproxy", Removed: "revoke",
	}
}

func TestSpecificationsAreChecked(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		edit func(*wire.Specification)
		says string // "": fine
	}{
		"all members":  {func(*wire.Specification) {}, ""},
		"few members":  {func(s *wire.Specification) { *s = wire.Specification{URIs: s.URIs, Files: s.Files} }, ""},
		"one file":     {func(s *wire.Specification) { s.Files = files{"combined": {Path: "/a/b.pem"}} }, ""},
		"kept RSA key": {func(s *wire.Specification) { s.Key = wire.SpecificationKey{Type: "RSA-4096", Keep: true} }, ""},
		"a fraction":   {func(s *wire.Specification) { s.Renew = "66%" }, ""},
		"sixteen names": {func(s *wire.Specification) {
			s.DNSNames = slices.Repeat([]string{"www.example.net"}, 14)
		}, ""},
		"seventeen names": {func(s *wire.Specification) {
			s.DNSNames = slices.Repeat([]string{"www.example.net"}, 15)
		}, "17 names"},
		"no names": {func(s *wire.Specification) { s.DNSNames, s.IPAddresses, s.URIs = nil, nil, nil }, "0 names"},
		"wildcard": {func(s *wire.Specification) { s.DNSNames = []string{"*.example.net"} }, "*.example.net"},
		"address as DNS name": {func(s *wire.Specification) {
			s.DNSNames = []string{"192.0.2.1"}
		}, "the last label is a number"},
		"another template":   {func(s *wire.Specification) { s.DNSNames = []string{"{{.token}}"} }, "{{.identity}}"},
		"a function":         {func(s *wire.Specification) { s.DNSNames = []string{`{{print "x"}}`} }, "{{.identity}}"},
		"open braces":        {func(s *wire.Specification) { s.DNSNames = []string{"{{.identity"} }, "{{.identity}}"},
		"all facts":          {func(s *wire.Specification) { s.DNSNames = []string{"{{.facts}}"} }, "{{.identity}}"},
		"template in a path": {edited("key", func(f *wire.SpecificationFile) { f.Path = "/etc/{{.facts.x}}/../shadow" }), "key: path"},
		"template in an address": {func(s *wire.Specification) {
			s.IPAddresses = []string{"{{.facts.ip}}"}
		}, "want an IP address"},
		"loopback":             {func(s *wire.Specification) { s.IPAddresses = []string{"127.0.0.1"} }, "127.0.0.1"},
		"relative URI":         {func(s *wire.Specification) { s.URIs = []string{"/a"} }, "URI"},
		"URI with a user":      {func(s *wire.Specification) { s.URIs = []string{"https://root@example.net/"} }, "URI"},
		"odd usage":            {func(s *wire.Specification) { s.Usages = []string{"ca"} }, `usage "ca"`},
		"odd key":              {func(s *wire.Specification) { s.Key.Type = "RSA-1024" }, "RSA-1024"},
		"odd profile":          {func(s *wire.Specification) { s.Profile = "a b" }, "profile"},
		"odd renewal":          {func(s *wire.Specification) { s.Renew = "soon" }, `renew "soon"`},
		"all of its life":      {func(s *wire.Specification) { s.Renew = "100%" }, "1% to 99%"},
		"odd removal":          {func(s *wire.Specification) { s.Removed = "delete" }, "delete"},
		"action with a path":   {func(s *wire.Specification) { s.Action = "../../bin/sh" }, "action"},
		"action like a flag":   {func(s *wire.Specification) { s.Action = "-c" }, "action"},
		"action of two lines":  {func(s *wire.Specification) { s.Action = "reload\nreboot" }, "action"},
		"no key":               {func(s *wire.Specification) { s.Files = files{"certificate": s.Files["certificate"]} }, "no file for the key"},
		"no certificate":       {func(s *wire.Specification) { s.Files = files{"key": s.Files["key"]} }, "no file for the certificate"},
		"key in no file":       {func(s *wire.Specification) { s.Files = files{"combined": {Path: "/a", Order: []string{"certificate"}}} }, "no file for the key"},
		"relative path":        {edited("key", func(f *wire.SpecificationFile) { f.Path = "a.key" }), "key: path"},
		"path that goes up":    {edited("key", func(f *wire.SpecificationFile) { f.Path = "/etc/muster/tls/../../shadow" }), "key: path"},
		"path of a directory":  {edited("key", func(f *wire.SpecificationFile) { f.Path = "/etc/" }), "key: path"},
		"path of the root":     {edited("key", func(f *wire.SpecificationFile) { f.Path = "/" }), "key: path"},
		"path with a NUL":      {edited("key", func(f *wire.SpecificationFile) { f.Path = "/etc/a\x00b" }), "key: path"},
		"long path":            {edited("key", func(f *wire.SpecificationFile) { f.Path = "/" + strings.Repeat("a", 512) }), "key: path"},
		"one path twice":       {edited("key", func(f *wire.SpecificationFile) { f.Path = "/etc/muster/tls/www.pem" }), "have one path"},
		"odd owner":            {edited("key", func(f *wire.SpecificationFile) { f.Owner = "root:root" }), "owner"},
		"odd group":            {edited("key", func(f *wire.SpecificationFile) { f.Group = "-R" }), "group"},
		"mode without octals":  {edited("key", func(f *wire.SpecificationFile) { f.Mode = "rw-------" }), "mode"},
		"set-id":               {edited("key", func(f *wire.SpecificationFile) { f.Mode = "4600" }), "mode"},
		"certificate for all":  {edited("certificate", func(f *wire.SpecificationFile) { f.Mode = "0644" }), ""},
		"writable certificate": {edited("certificate", func(f *wire.SpecificationFile) { f.Mode = "0666" }), "write it"},
		"key for all":          {edited("key", func(f *wire.SpecificationFile) { f.Mode = "0644" }), "read a key"},
		"combined for all":     {edited("combined", func(f *wire.SpecificationFile) { f.Mode = "0644" }), "read a key"},
		"combined without key": {edited("combined", func(f *wire.SpecificationFile) { f.Mode, f.Order = "0644", []string{"certificate", "chain"} }), ""},
		"order twice":          {edited("combined", func(f *wire.SpecificationFile) { f.Order = []string{"key", "key", "certificate"} }), "order"},
		"odd order":            {edited("combined", func(f *wire.SpecificationFile) { f.Order = []string{"key", "dhparam"} }), "dhparam"},
		"odd file": {func(s *wire.Specification) {
			s.Files["dhparam"] = wire.SpecificationFile{Path: "/a"}
		}, `"dhparam", want combined or one of`},
		"order of other file": {edited("key", func(f *wire.SpecificationFile) { f.Order = []string{"key"} }), "order"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := specification()
			tt.edit(s)
			err := s.Check()
			if tt.says == "" && err != nil || tt.says != "" && (!errors.Is(err, wire.ErrSpecification) ||
				!strings.Contains(err.Error(), tt.says)) {
				t.Errorf("Check = %v, want %q", err, tt.says)
			}
		})
	}
}

func TestSpecificationsListEveryMistake(t *testing.T) {
	t.Parallel()
	s := &wire.Specification{Profile: "/", Key: wire.SpecificationKey{Type: "DSA"}, DNSNames: []string{"a..b"},
		IPAddresses: []string{"::1"}, URIs: []string{"x"}, Usages: []string{"ca"}, Renew: "0%", Action: "/", Removed: "x",
		Files: files{"ca": {Path: "x", Owner: "/", Mode: "7", Order: []string{"ca"}}}}
	err := s.Check()
	for _, want := range []string{"profile", "DSA", "a..b", "::1", `URI "x"`, `usage "ca"`, "0%", "action", "removed",
		"no file for the key", "no file for the certificate", "ca: path", "owner", "mode 7", "order"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check does not say %q: %v", want, err)
		}
	}
}

func TestPushedSpecificationsAreChecked(t *testing.T) {
	t.Parallel()
	many := func(n int) map[string]wire.Specification {
		m := make(map[string]wire.Specification, n)
		for i := range n {
			m[fmt.Sprint("c", i)] = *specification()
		}
		return m
	}
	bad := *specification()
	bad.Action = "/bin/sh"
	long := *specification()
	long.URIs = slices.Repeat([]string{"https://example.net/" + strings.Repeat("a", 235)}, 12)
	tests := map[string]struct {
		certificates map[string]wire.Specification
		fine         bool
	}{
		"nil":         {nil, true},
		"none":        {map[string]wire.Specification{}, true},
		"64":          {many(64), true},
		"65":          {many(65), false},
		"a bad one":   {map[string]wire.Specification{"www": bad}, false},
		"a path":      {map[string]wire.Specification{"../www": *specification()}, false},
		"like a flag": {map[string]wire.Specification{"-v": *specification()}, false},
		"large":       {map[string]wire.Specification{"www": long}, true},
		"too large": {maps.Collect(func(yield func(string, wire.Specification) bool) {
			for i := range 64 {
				_ = yield(fmt.Sprint("c", i), long)
			}
		}), false},
	}
	for name, tt := range tests {
		f := wire.Files{Configuration: map[string]string{"a": "b"}, Certificates: tt.certificates}
		if err := f.Check(); (err == nil) != tt.fine || err != nil && !errors.Is(err, wire.ErrFiles) {
			t.Errorf("%s: Check = %v, want accepted %v", name, err, tt.fine)
		}
	}
}

// TestNilAndEmptyCertificatesDiffer: nil keeps what a node has, and empty removes it.
func TestNilAndEmptyCertificatesDiffer(t *testing.T) {
	t.Parallel()
	digests := map[string]string{}
	other := *specification()
	other.Renew = "9d"
	for name, certificates := range map[string]map[string]wire.Specification{"nil": nil, "empty": {},
		"one": {"www": *specification()}, "another name": {"web": *specification()}, "another point": {"www": other},
		"two": {"www": *specification(), "web": *specification()}} {
		sent := &wire.Reply{ID: "x", Enrolled: &wire.Enrolled{Files: wire.Files{Certificates: certificates}}}
		b, err := wire.Encode(sent)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.DecodeReply(b)
		if err != nil {
			t.Fatal(err)
		}
		if has := got.Enrolled.Certificates; (has == nil) != (certificates == nil) || len(has) != len(certificates) {
			t.Errorf("%s arrives as %v", name, has)
		}
		digest := wire.Digest("c", got.Enrolled.Files)
		if digest != wire.Digest("c", sent.Enrolled.Files) {
			t.Errorf("%s: another digest after the transfer", name)
		}
		if twin, taken := digests[digest]; taken {
			t.Errorf("%s and %s have one digest", name, twin)
		}
		digests[digest] = name
	}
}

func TestExpandName(t *testing.T) {
	t.Parallel()
	facts := map[string]string{"identity": "web1.example.net", "facts.a.b": "DB.Example.Net.", "facts.n": "3",
		"facts.evil": "x.example.net\nwww", "facts.shell": "$(reboot)", "facts.star": "*", "facts.template": "{{.identity}}"}
	value := func(path string) (string, error) {
		v, ok := facts[path]
		if !ok {
			return "", fmt.Errorf("no %s", path)
		}
		return v, nil
	}
	for template, want := range map[string]wire.Identity{
		"www.example.net": "www.example.net", "{{.identity}}": "web1.example.net", "a.{{ .identity }}": "a.web1.example.net",
		"{{.facts.a.b}}": "db.example.net", "n{{.facts.n}}.{{.identity}}": "n3.web1.example.net",
		"{{.facts.missing}}": "", "{{.facts.evil}}": "", "{{.facts.shell}}.a": "", "{{.facts.star}}.a": "",
		"{{.facts.template}}": "", "{{identity}}": "", "{{}}": "", "": "", "a b": "", "{{.facts.n}}": "",
	} {
		if got, err := wire.ExpandName(template, value); got != want || (err == nil) != (want != "") {
			t.Errorf("ExpandName(%q) = %q, %v, want %q", template, got, err, want)
		}
	}
}

func TestRenewAt(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	end := begin.Add(30 * 24 * time.Hour)
	for renew, want := range map[string]time.Duration{"": 20 * 24 * time.Hour, "50%": 15 * 24 * time.Hour,
		"40d": 15 * 24 * time.Hour, "10d": 20 * 24 * time.Hour, "12h": 30*24*time.Hour - 12*time.Hour} {
		if got, err := wire.RenewAt(renew, begin, end); err != nil || !got.Equal(begin.Add(want)) {
			t.Errorf("RenewAt(%q) = %v, %v", renew, got, err)
		}
	}
	for _, renew := range []string{"0%", "100%", "x%", "-1d", "x", " "} {
		if got, err := wire.RenewAt(renew, begin, end); err == nil {
			t.Errorf("RenewAt(%q) = %v, want an error", renew, got)
		}
	}
}

// TestReplyDigestCoversServiceCertificates changes each part of a signed reply.
func TestReplyDigestCoversServiceCertificates(t *testing.T) {
	t.Parallel()
	reply := func(c wire.ServiceCertificate) *wire.Reply {
		return &wire.Reply{ID: "x", Installation: "i", Certificate: &c}
	}
	full := wire.ServiceCertificate{Name: "www", Serial: "1", Certificate: "c", CA: "r"}
	seen := map[[32]byte]string{}
	for what, r := range map[string]*wire.Reply{
		"as it was":           reply(full),
		"another name":        reply(wire.ServiceCertificate{Name: "web", Serial: "1", Certificate: "c", CA: "r"}),
		"another serial":      reply(wire.ServiceCertificate{Name: "www", Serial: "2", Certificate: "c", CA: "r"}),
		"another certificate": reply(wire.ServiceCertificate{Name: "www", Serial: "1", Certificate: "d", CA: "r"}),
		"other roots":         reply(wire.ServiceCertificate{Name: "www", Serial: "1", Certificate: "c", CA: "s"}),
		"the name alone":      reply(wire.ServiceCertificate{Name: "www"}),
		"a confirmation":      {ID: "x", Installation: "i", Applied: &wire.Accepted{Serial: "1"}},
		"a refusal":           {ID: "x", Installation: "i", Refusal: &wire.Refusal{Code: wire.CodeShutdown}},
	} {
		if r.Refusal == nil && !r.Signed() {
			t.Errorf("%s: needs no signature", what)
		}
		digest := wire.ReplyDigest(r, "web1.example.net", []byte("asked"))
		if twin, taken := seen[digest]; taken {
			t.Errorf("%s and %s have one digest", what, twin)
		}
		seen[digest] = what
	}
}
