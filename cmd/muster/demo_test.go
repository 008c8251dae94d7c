package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/internal/demo"
)

// TestAFleetThatStays is a stranger's first hour with `muster demo --stay`: what it
// says it is, what each role may do, which nodes wait or are refused and why, and that
// nothing is left of it in the end.
func TestAFleetThatStays(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	dir, temporary := t.TempDir(), t.TempDir()
	cmd := command(t, "demo", "--stay", "--nodes", "20", "-o", "json")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	stay := startCommand(t, cmd)
	stay.waitFor(`(?m)^}$`)
	var p demo.Place
	if err := json.NewDecoder(strings.NewReader(stay.output())).Decode(&p); err != nil {
		t.Fatalf("%v: %s", err, stay.output())
	}
	parts, nodes := map[string]demo.Part{}, 0
	for _, part := range p.Parts {
		parts[part.Name] = part
		nodes += part.Nodes
		if part.Nodes < 1 {
			t.Errorf("no node is %s", part.Name)
		}
	}
	if nodes != 20 {
		t.Errorf("%d nodes, want 20", nodes)
	}
	for _, o := range p.Operators {
		for _, name := range []string{o.Credential, o.TokenFile} {
			if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: %v, %v", name, info, err)
			}
		}
	}
	as := func(who string) []string {
		for _, o := range p.Operators {
			if o.Name == who {
				return []string{"--url", p.URL, "--login", o.Credential}
			}
		}
		t.Fatalf("no %s among %+v", who, p.Operators)
		return nil
	}
	ask := func(who string, args ...string) string {
		t.Helper()
		return muster(t, dir, append(args, as(who)...)...)
	}
	eventually := func(pattern, who string, args ...string) {
		t.Helper()
		want, tick, deadline := regexp.MustCompile(pattern), time.NewTicker(100*time.Millisecond), time.After(patience)
		defer tick.Stop()
		for got := ask(who, args...); !want.MatchString(got); got = ask(who, args...) {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("muster %s never says %s:\n%s\n%s", strings.Join(args, " "), pattern, got, stay.output())
			}
		}
	}

	eventually(fmt.Sprintf(`"revoked": %d\b`, parts["revoked"].Nodes), "vera", "node", "list", "-o", "json") // the list follows within a second
	var list struct {
		States map[string]int `json:"states"`
	}
	if err := json.Unmarshal([]byte(ask("vera", "node", "list", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	if least := parts["members"].Nodes; least == 0 || list.States["provisioned"] < least {
		t.Errorf("%d nodes are provisioned, want %d and more", list.States["provisioned"], least)
	}
	waiting := parts["waiting"].Example
	eventually(regexp.QuoteMeta(waiting), "vera", "node", "pending")
	eventually("quarantine", "vera", "node", "explain", parts["denied"].Example)

	for _, verb := range []string{"reconfigure", "restart", "reprovision"} {
		ask("otto", "node", verb, parts["members"].Example, "--why", "a test", "--wait")
	}

	// The pattern that is printed matches members, however small the fleet is.
	if fits := ask("otto", "node", "reprovision", "--match", "web*.example.net", "--dry-run", "--why", "a test"); !strings.Contains(fits, parts["members"].Example+"\n") {
		t.Errorf("the pattern fits %q, want %s", fits, parts["members"].Example)
	}

	refused := command(t, append([]string{"node", "approve", waiting, "--why", "rack 4"}, as("vera")...)...)
	if out, err := refused.CombinedOutput(); err == nil || !strings.Contains(string(out), "viewer") {
		t.Errorf("a viewer approves: %v: %s", err, out)
	}
	ask("otto", "node", "approve", waiting, "--why", "rack 4")
	eventually(regexp.QuoteMeta(waiting), "vera", "node", "list", "--state", "provisioned", "--prefix", waiting)
	signed := command(t, "status", "--url", p.URL, "--login", filepath.Join(p.Dir, "provisioner", "ca", "root.pem"), "--login", p.Operators[0].TokenFile)
	if out, err := signed.CombinedOutput(); err != nil {
		t.Errorf("with a token: %v: %s", err, out)
	}
	stay.stop()
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDemoRemovesItsKeysIfItsOutputIsClosed closes the pipe that the demo prints to, as `| head` does.
func TestDemoRemovesItsKeysIfItsOutputIsClosed(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	temporary := t.TempDir()
	cmd := command(t, "demo", "--nodes", "5")
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
	reads, writes, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reads.Close()
	cmd.Stdout, cmd.Stderr = writes, writes
	err = cmd.Run()
	_ = writes.Close()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || exit != nil && !exit.Exited() {
		t.Errorf("demo ended with %v", err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
