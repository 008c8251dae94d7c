package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/internal/simnode"
)

// TestOperatorOrdersSurviveKilledProvisioner kills the provisioner with SIGKILL while operators approve, reject and allow
// nodes, and add and remove operators. Operators repeat orders that got no answer. In the end approved and allowed nodes
// are provisioned, rejected nodes are not, and each token for one use has admitted one node.
func TestOperatorOrdersSurviveKilledProvisioner(t *testing.T) {
	if testing.Short() {
		t.Skip("a larger test: `make ci` runs it")
	}
	t.Parallel()
	const each, kills = 2, 3
	dir := t.TempDir()
	port := freePort(t)
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+port)
	muster(t, dir, "jwt", "any.jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--urls", "127.0.0.1:"+port)
	text, err := os.ReadFile(dir + "/any.jwt")
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(text))
	config := []string{"--config", "prov/provisioner.yaml"}
	run := func() *process {
		p := start(t, dir, append([]string{"provisioner", "run"}, config...)...)
		p.waitFor("provisioner is serving")
		return p
	}
	p := run()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w := &wave{url: "nats://127.0.0.1:" + port, told: map[string]string{}, enrolled: make(chan struct{}, 1000)}

	// try runs an operator's command once.
	try := func(args ...string) (string, bool) {
		cmd := command(t, append(args, config...)...)
		cmd.Dir = dir
		out, err := cmd.Output()
		return string(out), err == nil
	}
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	pause := func() {
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	// must repeats an operator's command until it succeeds.
	must := func(args ...string) string {
		for ctx.Err() == nil {
			if out, ok := try(args...); ok {
				return out
			}
			pause()
		}
		t.Errorf("muster %s: no answer", strings.Join(args, " "))
		return ""
	}
	newNode := func(name, token string) *simnode.Node {
		n, err := simnode.New(name, token)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	var provisioned sync.Map // by name
	enroll := func(n *simnode.Node) bool {
		pause()
		ok := w.try(ctx, t, n)
		if ok {
			provisioned.Store(n.Identity, true)
		}
		return ok
	}
	var steps atomic.Int64
	var all sync.WaitGroup
	all.Go(func() { must("allow", "add", "db*.example.net"); steps.Add(1) })
	for i := range each {
		all.Go(func() {
			n := newNode(fmt.Sprintf("web%d.example.net", i), token)
			for ctx.Err() == nil && !enroll(n) {
				try("node", "approve", n.Identity) // fails until the node is pending
				steps.Add(1)
			}
		})
		all.Go(func() {
			n := newNode(fmt.Sprintf("rogue%d.example.net", i), token)
			for rejected := false; ctx.Err() == nil && !rejected; {
				enroll(n)
				_, rejected = try("node", "reject", n.Identity)
				steps.Add(1)
			}
			enroll(n)
		})
		all.Go(func() {
			n := newNode(fmt.Sprintf("db%d.example.net", i), token)
			for ctx.Err() == nil && !enroll(n) {
				steps.Add(1)
			}
		})
		all.Go(func() {
			name := fmt.Sprintf("op%d", i)
			must("operator", "add", name, "--role", "admin", "--certificate")
			must("operator", "add", name, "--role", "viewer", "--public-key", "prov/signer.pem")
			if i > 0 {
				must("operator", "remove", name)
			}
			steps.Add(1)
		})
		name := fmt.Sprintf("once%d.example.net", i)
		muster(t, dir, "jwt", name+".jwt", "prov/signer-key.pem", "--insecure", "--token", "toomanysecrets", "--default",
			"--urls", "127.0.0.1:"+port, "--uses", "1", "--identity", name)
		once, err := os.ReadFile(filepath.Join(dir, name+".jwt"))
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			text := strings.TrimSpace(string(once))
			n := newNode(name, text)
			for ctx.Err() == nil && !enroll(n) {
			}
			steps.Add(1)
			if enroll(newNode(name, text)) {
				t.Errorf("two nodes enrolled as %s with a token for one use", name)
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for k := range int64(kills) {
		over := false
		for !over && steps.Load() < 3*k+1 { // some orders are done, some in progress
			select {
			case <-ended:
				over = true
			case <-poll.C:
			}
		}
		if err := p.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-p.done
		p = run()
	}
	<-ended
	list := must("operator", "list")
	for i := range each {
		want := "removed"
		if i == 0 {
			want = "viewer"
		}
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^op%d +%s `, i, want)).MatchString(list) {
			t.Errorf("op%d is not %s:\n%s", i, want, list)
		}
	}
	if strings.Contains(list, "admin") {
		t.Errorf("a role was not lowered:\n%s", list)
	}
	count := map[string]int{}
	provisioned.Range(func(name, _ any) bool {
		count[strings.TrimRight(strings.TrimSuffix(name.(string), ".example.net"), "0123456789")]++
		return true
	})
	if count["web"] != each || count["rogue"] != 0 || count["db"] != each || count["once"] != each {
		t.Errorf("provisioned: %v, want %d approved (web), no rogue, %d allowed (db) and %d with a token for one use (once)",
			count, each, each, each)
	}
	p.stop()
	w.compare(t, dir+"/prov/provisioner.yaml")
}
