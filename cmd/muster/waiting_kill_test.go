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

// TestKilledProvisionerWhileOperatorsDecide kills the provisioner with SIGKILL
// while operators approve, reject, allow names, and add and remove
// each other, and machines use all of that. Operators repeat what got no answer. In the end who was
// approved is in, who was rejected is out, those of the allow-list are in,
// and each token for one use is good for its one machine.
func TestKilledProvisionerWhileOperatorsDecide(t *testing.T) {
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

	// try asks an operator's verb, once.
	try := func(args ...string) (string, bool) {
		cmd := command(t, append(args, config...)...)
		cmd.Dir = dir
		out, err := cmd.Output()
		return string(out), err == nil
	}
	again := time.NewTicker(20 * time.Millisecond) // for the node that comes first
	defer again.Stop()
	pause := func() {
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	// must repeats it until it is answered.
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
	machine := func(name, token string) *simnode.Node {
		n, err := simnode.New(name, token)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	var in sync.Map // names of machines that are provisioned
	asks := func(n *simnode.Node) bool {
		pause()
		ok := w.try(ctx, t, n)
		if ok {
			in.Store(n.Identity, true)
		}
		return ok
	}
	var steps atomic.Int64
	var all sync.WaitGroup
	all.Go(func() { must("allow", "add", "db*.example.net"); steps.Add(1) })
	for i := range each {
		all.Go(func() {
			n := machine(fmt.Sprintf("web%d.example.net", i), token)
			for ctx.Err() == nil && !asks(n) {
				try("node", "approve", n.Identity) // no node is pending under it before it is listed
				steps.Add(1)
			}
		})
		all.Go(func() {
			n := machine(fmt.Sprintf("rogue%d.example.net", i), token)
			for rejected := false; ctx.Err() == nil && !rejected; {
				asks(n)
				_, rejected = try("node", "reject", n.Identity)
				steps.Add(1)
			}
			asks(n)
		})
		all.Go(func() {
			n := machine(fmt.Sprintf("db%d.example.net", i), token)
			for ctx.Err() == nil && !asks(n) {
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
			n := machine(name, text)
			for ctx.Err() == nil && !asks(n) {
			}
			steps.Add(1)
			if asks(machine(name, text)) {
				t.Errorf("two machines got %s by one token", name)
			}
		})
	}
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for k := range int64(kills) {
		over := false
		for !over && steps.Load() < 3*k+1 { // some things are done, others under way
			select {
			case <-ended:
				over = true
			case <-look.C:
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
	in.Range(func(name, _ any) bool {
		count[strings.TrimRight(strings.TrimSuffix(name.(string), ".example.net"), "0123456789")]++
		return true
	})
	if count["web"] != each || count["rogue"] != 0 || count["db"] != each || count["once"] != each {
		t.Errorf("in: %v, want %d that were approved, no rogue, %d of the allow-list and %d with tokens of their own", count, each, each, each)
	}
	p.stop()
	w.compare(t, dir+"/prov/provisioner.yaml")
}
