package certificates_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/wire"
	"muster/server/certificates"
)

// simple is a specification with one file.
func simple(path, more string) string {
	return "dns_names: [web1.example.net]\nfiles:\n  combined: {path: " + path + more + "}\n"
}

// Nothing is asked or written for a specification that a node must not follow, and the status says why.
func TestHostileSpecifications(t *testing.T) {
	t.Parallel()
	link := func(t *testing.T, n *node, target, name string) {
		if err := os.Symlink(n.path(target), n.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	chmod := func(t *testing.T, n *node, name string, mode os.FileMode) {
		if err := os.Chmod(n.path(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		spec    string // default: a good one
		pushed  bool
		prepare func(*testing.T, *node)
		want    string // in the reason
	}{
		"path traversal":           {spec: simple("DIR/etc/tls/../../web.pem", ""), want: "want an absolute one without"},
		"relative path":            {spec: simple("web.pem", ""), want: "want an absolute one"},
		"NUL in a path":            {spec: simple(`"DIR/srv/a\0b.pem"`, ""), want: "path"},
		"own key":                  {spec: simple("DIR/etc/ssl/private.pem", ""), want: "is muster's own"},
		"own state":                {spec: simple("DIR/etc/ssl/certificates/web.json", ""), want: "is muster's own"},
		"specification":            {spec: simple("DIR/etc/certificates.d/other.yaml", ""), want: "is muster's own"},
		"action":                   {spec: simple("DIR/etc/actions.d/other.yaml", ""), want: "is muster's own"},
		"settings":                 {spec: simple("DIR/etc/certificates.yaml", ""), want: "is muster's own"},
		"server.conf":              {spec: simple("DIR/etc/server.conf", ""), want: "is muster's own"},
		"token":                    {spec: simple("DIR/token.jwt", ""), want: "is muster's own"},
		"beside the tls directory": {spec: simple("DIR/etc/tls.pem", ""), want: "is muster's own"},
		"own directory by a link of the operator": {
			spec: simple("DIR/data/ssl/web.pem", ""),
			prepare: func(t *testing.T, n *node) {
				if err := os.MkdirAll(n.path("data"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(n.path("etc/ssl"), n.path("data/ssl")); err != nil {
					t.Fatal(err)
				}
				link(t, n, "data/ssl", "etc/ssl")
			},
			want: "is muster's own",
		},
		"linked directory": {
			spec:    simple("DIR/link/web.pem", ""),
			prepare: func(t *testing.T, n *node) { link(t, n, "srv", "link") },
			want:    "is a link",
		},
		"linked directory above": {
			spec: simple("DIR/link/below/web.pem", ""),
			prepare: func(t *testing.T, n *node) {
				if err := os.Mkdir(n.path("srv/below"), 0o755); err != nil {
					t.Fatal(err)
				}
				link(t, n, "srv", "link")
			},
			want: "is a link",
		},
		"linked file": {
			spec:    simple("DIR/srv/web.pem", ""),
			prepare: func(t *testing.T, n *node) { n.write("victim", ""); link(t, n, "victim", "srv/web.pem") },
			want:    "is a link",
		},
		"dangling link": {
			spec:    simple("DIR/srv/web.pem", ""),
			prepare: func(t *testing.T, n *node) { link(t, n, "victim", "srv/web.pem") },
			want:    "is a link",
		},
		"directory of everybody": {
			spec:    simple("DIR/srv/web.pem", ""),
			prepare: func(t *testing.T, n *node) { chmod(t, n, "srv", 0o777) },
			want:    "other users",
		},
		"sticky directory of everybody": {
			spec:    simple("DIR/srv/web.pem", ""),
			prepare: func(t *testing.T, n *node) { chmod(t, n, "srv", 0o777|os.ModeSticky) },
			want:    "other users",
		},
		"directory of a group": {
			spec:    simple("DIR/srv/web.pem", ""),
			prepare: func(t *testing.T, n *node) { chmod(t, n, "srv", 0o775) },
			want:    "other users",
		},
		"writable directory above": {
			spec: simple("DIR/srv/below/web.pem", ""),
			prepare: func(t *testing.T, n *node) {
				if err := os.Mkdir(n.path("srv/below"), 0o755); err != nil {
					t.Fatal(err)
				}
				chmod(t, n, "srv", 0o777)
			},
			want: "other users",
		},
		"missing directory": {spec: simple("DIR/srv/below/web.pem", ""), want: "no such file or directory"},
		"a directory":       {spec: simple("DIR/srv", ""), want: "no regular file"},
		"a program": {
			spec:    simple("DIR/srv/web.pem", ""),
			prepare: func(_ *testing.T, n *node) { n.write("srv/web.pem", "#!/bin/sh\n") },
			want:    "is not replaced",
		},
		"a program with PEM": {
			spec:    simple("DIR/srv/web.pem", ""),
			prepare: func(_ *testing.T, n *node) { n.write("srv/web.pem", "-----BEGIN X-----\nAAAA\n-----END X-----\n") },
			want:    "is not replaced",
		},
		"a key of ssh": {
			spec: simple("DIR/srv/id_rsa", ""),
			prepare: func(_ *testing.T, n *node) {
				n.write("srv/id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
			},
			want: "is not replaced",
		},
		"incomplete file of another": {spec: simple("DIR/srv/web.pem.muster-new", ""), want: "incomplete files"},
		"key for all":                {spec: simple("DIR/srv/web.pem", ", mode: 0644"), want: "mode"},
		"set-id":                     {spec: simple("DIR/srv/web.pem", `, mode: "4755"`), want: "mode"},
		"unknown owner":              {spec: simple("DIR/srv/web.pem", ", owner: no-such-user"), want: "unknown user"},
		"unknown keys": {spec: simple("DIR/srv/web.pem", ", sticky: 1") + "hook: /bin/sh\n",
			want: `unknown key "sticky"`},
		"all mistakes at once": {spec: simple("web.pem", "") + "hook: /bin/sh\nkey: {type: DSA}\n", want: `key type "DSA"`},
		"no YAML":              {spec: "{", want: "yaml"},
		"two documents":        {spec: simple("DIR/srv/web.pem", "") + "---\n{}\n", want: "document"},
		"writable specification": {
			prepare: func(t *testing.T, n *node) { chmod(t, n, "etc/certificates.d/web.yaml", 0o666) },
			want:    "other users",
		},
		"writable directory of specifications": {
			prepare: func(t *testing.T, n *node) { chmod(t, n, "etc/certificates.d", 0o777) },
			want:    "other users",
		},

		"action with a slash":   {spec: simple("DIR/srv/web.pem", "") + "action: ../../tmp/x\n", want: "action"},
		"action with a newline": {spec: simple("DIR/srv/web.pem", "") + "action: \"a\\nb\"\n", want: "action"},
		"action like a flag":    {spec: simple("DIR/srv/web.pem", "") + "action: --help\n", want: "action"},
		"action of a shell":     {spec: simple("DIR/srv/web.pem", "") + "action: \"a; touch x\"\n", want: "action"},
		"unknown action":        {spec: simple("DIR/srv/web.pem", "") + "action: none\n", want: "none"},
		"action that another user may change": {
			spec: simple("DIR/srv/web.pem", "") + "action: touch\n",
			prepare: func(t *testing.T, n *node) {
				n.action("touch", "touch DIR/victim")
				chmod(t, n, "etc/actions.d/touch.yaml", 0o646)
			},
			want: "other users",
		},
		"program that another user may change": {
			spec: simple("DIR/srv/web.pem", "") + "action: touch\n",
			prepare: func(t *testing.T, n *node) {
				n.action("touch", "touch DIR/victim")
				chmod(t, n, "touch.sh", 0o777)
			},
			want: "other users",
		},
		"unit like a flag": {
			spec:    simple("DIR/srv/web.pem", "") + "action: flag\n",
			prepare: func(_ *testing.T, n *node) { n.write("etc/actions.d/flag.yaml", "unit: --root=/\nverb: reload\n") },
			want:    "unit",
		},
		"verb that ends a unit": {
			spec:    simple("DIR/srv/web.pem", "") + "action: stop\n",
			prepare: func(_ *testing.T, n *node) { n.write("etc/actions.d/stop.yaml", "unit: sshd\nverb: stop\n") },
			want:    "verb",
		},

		"name of a fact with shell text": {
			spec:    strings.Replace(simple("DIR/srv/web.pem", ""), "web1.example.net", `"{{.facts.name}}.example.net"`, 1),
			prepare: func(_ *testing.T, n *node) { n.set(func() { n.facts = `{"name": "$(touch victim)"}` }) },
			want:    "DNS name",
		},
		"name of a fact with a newline": {
			spec:    strings.Replace(simple("DIR/srv/web.pem", ""), "web1.example.net", `"{{.facts.name}}.example.net"`, 1),
			prepare: func(_ *testing.T, n *node) { n.set(func() { n.facts = `{"name": "a\nb"}` }) },
			want:    "DNS name",
		},
		"wildcard of a fact": {
			spec:    strings.Replace(simple("DIR/srv/web.pem", ""), "web1.example.net", `"{{.facts.name}}.example.net"`, 1),
			prepare: func(_ *testing.T, n *node) { n.set(func() { n.facts = `{"name": "*"}` }) },
			want:    "DNS name",
		},
		"fact that is an object": {
			spec:    strings.Replace(simple("DIR/srv/web.pem", ""), "web1.example.net", `"{{.facts.name}}.example.net"`, 1),
			prepare: func(_ *testing.T, n *node) { n.set(func() { n.facts = `{"name": {"a": "b"}}` }) },
			want:    "facts.name",
		},

		"pushed outside":       {spec: simple("DIR/srv/web.pem", ""), pushed: true, want: "may not write"},
		"pushed beside":        {spec: simple("DIR/etc/tlsx/web.pem", ""), pushed: true, want: "may not write"},
		"pushed to the system": {spec: simple("/etc/cron.d/web", ""), pushed: true, want: "may not write"},
		"pushed traversal":     {spec: simple("DIR/etc/tls/../ssl/private.pem", ""), pushed: true, want: "want an absolute one"},
		"pushed owner": {spec: simple("DIR/etc/tls/web.pem", ", owner: daemon"), pushed: true,
			want: "may not set owner"},
		"pushed mode":    {spec: simple("DIR/etc/tls/web.pem", `, mode: "0666"`), pushed: true, want: "mode"},
		"pushed for all": {spec: simple("DIR/etc/tls/web.pem", `, mode: "0644", order: [certificate]`), pushed: true, want: "mode"},
		"pushed set-id":  {spec: simple("DIR/etc/tls/web.pem", `, mode: "4640"`), pushed: true, want: "mode"},
		"pushed action":  {spec: simple("DIR/etc/tls/web.pem", "") + "action: none\n", pushed: true, want: "none"},
		"pushed by a link": {
			spec:    simple("DIR/etc/tls/link/web.pem", ""),
			pushed:  true,
			prepare: func(t *testing.T, n *node) { link(t, n, "srv", "etc/tls/link") },
			want:    "is a link",
		},
		"pushed with unusable settings": {
			spec:    simple("DIR/etc/tls/web.pem", ""),
			pushed:  true,
			prepare: func(_ *testing.T, n *node) { n.write("etc/certificates.yaml", "directory: [/]\n") },
			want:    "unknown key",
		},
		"pushed with settings for everything": {
			spec:    simple("DIR/etc/tls/web.pem", ""),
			pushed:  true,
			prepare: func(_ *testing.T, n *node) { n.write("etc/certificates.yaml", "directories: [/]\n") },
			want:    "want a clean absolute one",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			if c.spec == "" {
				c.spec = web
			}
			text := strings.ReplaceAll(c.spec, "DIR", n.dir)
			if !c.pushed {
				n.specify("web", text)
			}
			if c.prepare != nil {
				c.prepare(t, n)
			}
			if c.pushed {
				n.push(map[string]wire.Specification{"web": parse(t, text)})
			}
			before := n.tree()
			m := n.start()
			s := n.await("web", "stuck", func(s certificates.Status) bool { return s.Stuck && !s.ErrorAt.IsZero() })
			m.stop()
			if !strings.Contains(s.Reason, c.want) {
				t.Errorf("reason = %s, want %q in it", s.Reason, c.want)
			}
			if asks := n.requests(wire.CertificateIssue); len(asks) > 0 {
				t.Errorf("asked for %d certificates", len(asks))
			}
			if after := n.tree(); after != before {
				t.Errorf("files are\n%s, were\n%s", after, before)
			}
		})
	}
}

// tree lists all files but the state.
func (n *node) tree() string {
	n.tb.Helper()
	var b strings.Builder
	err := filepath.Walk(n.dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || strings.HasPrefix(path, n.cfg.State) || strings.Contains(path, "/ssl") {
			return err
		}
		fmt.Fprintln(&b, path, info.Mode(), info.Size(), info.ModTime())
		return nil
	})
	if err != nil {
		n.tb.Fatal(err)
	}
	return b.String()
}

// Specifications that write one file are refused, and name each other; the certificate in force stays.
func TestTwoSpecificationsWithOnePath(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.specify("web", web)
	n.start()
	n.await("web", "current", in(certificates.Current))
	first := n.checkFiles()
	n.specify("other", simple("DIR/srv/web.pem", ""))
	for _, name := range []string{"web", "other"} {
		s := n.await(name, "stuck", stuck)
		if !strings.Contains(s.Reason, n.path("srv/web.pem")+" is written by specifications other and web") {
			t.Errorf("%s: reason = %s", name, s.Reason)
		}
	}
	if n.checkFiles() != first {
		t.Error("the certificate in force was replaced")
	}
	if err := os.Remove(n.path("etc/certificates.d/other.yaml")); err != nil {
		t.Fatal(err)
	}
	n.await("web", "current again", in(certificates.Current))
}

// A node has at most 64 specifications: further ones are refused.
func TestTooManySpecifications(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for i := range wire.MaxCertificates + 1 {
		n.specify(fmt.Sprintf("web%03d", i), simple(fmt.Sprintf("DIR/srv/%d.pem", i), ""))
	}
	n.specify("in valid", web)
	all, err := certificates.New(n.cfg).Statuses()
	if err == nil || !strings.Contains(err.Error(), `"in valid.yaml" cannot be a certificate's name`) {
		t.Errorf("error = %v", err)
	}
	if len(all) != wire.MaxCertificates+1 || all[63].Stuck || !all[64].Stuck ||
		!strings.Contains(all[64].Reason, "65 specifications, limit 64") {
		t.Errorf("%d statuses, the last: %+v", len(all), all[len(all)-1])
	}
}
