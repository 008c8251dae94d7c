package main

import (
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"muster/internal/testbed"
	"muster/internal/wire"
)

// TestServiceCertificatesAreDecidedOn lists, explains, approves, rejects and revokes service certificates by commands,
// and runs the commands that an explanation shows.
func TestServiceCertificatesAreDecidedOn(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	config := filepath.Join(f.Dir, "provisioner.yaml")
	muster := func(want int, args ...string) string {
		t.Helper()
		cmd := command(t, append(args, "--config", config)...)
		out, _ := cmd.CombinedOutput()
		if exit := cmd.ProcessState.ExitCode(); exit != want {
			t.Fatalf("%v: exit %d: %s", args, exit, out)
		}
		return string(out)
	}
	says := func(text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("lacks %q:\n%s", part, text)
			}
		}
	}
	says(muster(0, "certificate", "list"), "no service certificates match")
	asks := func(identity, name, dns string) func() *wire.Reply {
		n := f.Node(identity)
		e := f.Enroll(n)
		f.Apply(n, e)
		ask := func() *wire.Reply { return f.AskService(n, e, name, dns, nil) }
		ask()
		return ask
	}
	one := asks("web1.example.net", "https", "www.example.net")
	asks("web2.example.net", "https", "shop.example.net")
	asks("web3.example.net", "https", "api.example.net")
	asks("db1.example.net", "sql", "sql.db1.example.net")

	says(muster(0, "certificate", "list", "--waiting", "-o", "name"),
		"web1.example.net\nweb2.example.net\nweb3.example.net\n")
	says(muster(0, "certificate", "list", "sql", "--expiring", "60d", "--sort", "expires"), "db1.example.net", "current",
		"sql.db1.example.net", "1 service certificate: 1 current; stuck 0")
	says(muster(2, "certificate", "list", "--state", "good", "--expiring", "soon"), "--state:", "--expiring:")

	// The commands that it shows can be pasted.
	shown := muster(0, "certificate", "show", "web1.example.net", "https")
	says(shown, "waits for an approval", "www.example.net")
	says(muster(0, "node", "explain", "web1.example.net"), "certificate approve web1.example.net https")
	advice := regexp.MustCompile(`muster (certificate approve web1\S+ https) --config (\S+):`)
	pasted := advice.FindStringSubmatch(shown)
	if pasted == nil || pasted[2] != config {
		t.Fatalf("no command to paste: %s", shown)
	}
	says(muster(0, append(strings.Fields(pasted[1]), "--dry-run")...), "would approve 1 service certificate")
	if r := one(); r.Refusal == nil {
		t.Fatal("a dry run has approved the request")
	}
	says(muster(0, append(strings.Fields(pasted[1]), "--why", "ticket 17")...),
		"https of web1.example.net, www.example.net, is approved")
	says(muster(0, "certificate", "show", "web1.example.net", "https"), "ticket 17", "gets it at its next request")

	// Several at once are shown first.
	says(muster(2, "certificate", "reject", "web*.example.net", "https"), "web2.example.net", "give --yes")
	cmd := command(t, "certificate", "reject", "web*.example.net", "https", "--config", config)
	person, stream := openTerminal(t)
	cmd.Stdin = stream
	asking := startCommand(t, cmd)
	asking.waitFor(`reject \d service certificates\?`)
	if _, err := io.WriteString(person, "n\n"); err != nil {
		t.Fatal(err)
	}
	<-asking.done
	if says(asking.output(), "the answer was no"); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("exit %d", cmd.ProcessState.ExitCode())
	}
	says(muster(0, "certificate", "reject", "web?.example.net", "https", "--yes", "--why", "moved"),
		"https of web3.example.net, api.example.net, is rejected")
	says(muster(0, "certificate", "revoke", "db1.example.net", "sql", "-o", "json"), `"serial"`)
	says(muster(0, "certificate", "list", "--state", "revoked", "-o", "csv"), "db1.example.net,sql,revoked")
	says(muster(1, "certificate", "revoke", "db1.example.net", "ftp"), "no such service certificate")
	says(muster(0, "status"), "Service certificates", "1 revoked")
	f.Check()
}
