package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/jwt"
)

// TestCommandsOfAnotherSitesOperatorTellAndChangeNothing runs every command that asks a provisioner, as an operator of
// site ams1. All nodes are at fra1, but for web2, which has no site.
func TestCommandsOfAnotherSitesOperatorTellAndChangeNothing(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.Site, c.API.Listen, c.API.Addresses = "fra1", "127.0.0.1:0", []string{"127.0.0.1"}
	}})
	f.Allow("web*.example.net")
	token := f.Token(func(c *jwt.Claims) {
		if err := c.SetLimits(jwt.Limits{Site: "fra1"}); err != nil {
			t.Fatal(err)
		}
	})
	web, db, none := f.Node("web1-fra1.example.net"), f.Node("db1-fra1.example.net"), f.Node("web2.example.net")
	web.Token, db.Token = token, token
	given := f.Enroll(web)
	f.Apply(web, given)
	f.AskService(web, given, "https", "www.fra1.example.net", nil)
	f.Apply(none, f.Enroll(none))
	f.Refused(db)
	tid := string(f.Record("web1-fra1.example.net").Token)
	dir := t.TempDir()
	muster(t, dir, "operator", "add", "anna", "--role", "operator", "--site", "ams1", "--certificate", "--config",
		filepath.Join(f.Dir, "provisioner.yaml"))
	openssl(t, dir, "genpkey", "-algorithm", "ed25519", "-out", "key.pem")
	openssl(t, dir, "pkey", "-in", "key.pem", "-pubout", "-out", "signer.pem")
	// A policy is compiled before inputs are asked for.
	write(t, filepath.Join(dir, "policy.rego"), f.Read("policy/default.rego"))
	write(t, filepath.Join(dir, "names"), "allow: [{pattern: lb*.example.net}]\n")

	app := kingpin.New(program, "")
	addVerbs(app, verbs{})
	all := slices.DeleteFunc(cli.Commands(app.Model().CmdGroupModel), func(c cli.Command) bool {
		return !hasFlag(c, "url") || c.FullCommand == "login" || c.FullCommand == "bench" // which need no operator
	})
	ran := map[string]bool{}
	// What each prints, if it does not fail.
	const cut, public = "only what is at ams1, which is nothing", "what strangers may read"
	for line, prints := range map[string]string{
		"token list":                                  cut,
		"node list":                                   cut,
		"node pending":                                cut,
		"certificate list":                            cut,
		"events --since 1d":                           cut,
		"status":                                      cut,
		"ca show":                                     public,
		"ca crl":                                      public,
		"token show " + tid:                           "",
		"token revoke " + tid:                         "",
		"token release " + tid + " NODE":              "",
		"token unfreeze " + tid + " --left 1":         "",
		"signer add signer.pem":                       "",
		"signer list":                                 "",
		"signer remove signer":                        "",
		"node show NODE":                              "",
		"node history NODE":                           "",
		"node explain NODE":                           "",
		"node revoke NODE --yes":                      "",
		"node retire NODE --yes":                      "",
		"node grant NODE --yes":                       "",
		"node reprovision NODE --yes":                 "",
		"node reconfigure NODE --yes":                 "",
		"node restart NODE --yes":                     "",
		"node shutdown NODE --yes":                    "",
		"node approve KEY --yes":                      "",
		"node reject KEY --yes":                       "",
		"node forget KEY --yes":                       "",
		"node revoke --all --yes":                     cut,
		"node approve --all --yes":                    cut,
		"allow add lb*.example.net":                   "",
		"allow import names --source x":               "",
		"allow list":                                  "",
		"allow remove web*.example.net":               "",
		"certificate show NODE https":                 "",
		"certificate approve NODE https":              "",
		"certificate reject NODE https":               "",
		"certificate revoke NODE https":               "",
		"pause":                                       "",
		"resume":                                      "",
		"operator add ben --role admin --certificate": "",
		"operator list":                               "",
		"operator remove anna":                        "",
		"session list":                                "",
		"session end x":                               "",
		"policy replay policy.rego":                   "",
		"policy eval policy.rego --node NODE":         "",
		"policy reload":                               "",
		"webhook list":                                "",
		"webhook test x":                              "",
		"backup file":                                 "",
		"recovery end":                                "",
		"provisioner accept-clock":                    "",
	} {
		args := strings.Fields(strings.NewReplacer("NODE", string(web.Identity), "KEY", string(db.Identity)).Replace(line))
		i := slices.IndexFunc(all, func(c cli.Command) bool { return strings.HasPrefix(line+" ", c.FullCommand+" ") })
		if ran[all[i].FullCommand] = true; hasFlag(all[i], "why") {
			args = append(args, "--why", "a test")
		}
		cmd := command(t, append(args, "--url", f.Daemon().APIURL(), "--login", filepath.Join(dir, "anna.pem"))...)
		cmd.Dir = dir
		b, err := cmd.CombinedOutput()
		out := string(b)
		refused := err != nil && slices.ContainsFunc(refusals, func(r string) bool { return strings.Contains(out, r) })
		if prints == "" && !refused || prints != "" && err != nil {
			t.Errorf("muster %s: %v: %s", line, err, out)
		}
		for _, arg := range args {
			if len(arg) > 9 {
				out = strings.ReplaceAll(out, arg, "")
			}
		}
		for _, secret := range []string{"fra1", "web2", tid} {
			if strings.Contains(out, secret) {
				t.Errorf("muster %s tells %q: %s", line, secret, out)
			}
		}
	}
	for _, c := range all {
		if !ran[c.FullCommand] {
			t.Errorf("muster %s asks a provisioner: say in this test what another site's operator gets", c.FullCommand)
		}
	}
	waiting, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "")
	if r := f.Record("web1-fra1.example.net"); err != nil || len(waiting) != 1 || r.Operator != nil {
		t.Errorf("another site's operator has changed something: %d keys wait, %v; %+v", len(waiting), err, r.Operator)
	}
}

// refusals are what commands print that are refused, or whose subject is not in the list that the operator gets.
var refusals = []string{"at a site of yours", "needs admin", "no such service certificate"}

func hasFlag(c cli.Command, name string) bool {
	return slices.ContainsFunc(c.AllFlags, func(f *kingpin.FlagModel) bool { return f.Name == name })
}
