package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/provisioner/trust"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner/operate"
)

// TestRejectionDuringTheQuestionStays rejects one of two nodes after `muster node approve` or `forget` asks, and before the
// operator answers. The rejected node stays rejected; the order applies to the other node.
func TestRejectionDuringTheQuestionStays(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	for _, verb := range []string{"approve", "forget"} {
		t.Run(verb, func(t *testing.T) { //nolint:paralleltest // one fleet
			good, bad := f.Node(verb+"-good.example.net"), f.Node(verb+"-bad.example.net")
			p := f.Daemon().Operator()
			for _, n := range []*simnode.Node{good, bad} {
				f.Refused(n)
				f.Eventually(n.Identity+" waits", func() bool {
					list, err := testbed.Orders(p).Keys.Waiting(f.Context(), wire.Identity(n.Identity))
					return err == nil && len(list) == 1
				})
			}
			cmd := command(t, "node", verb, "--prefix", verb, "--config", filepath.Join(f.Dir, "provisioner.yaml"))
			person, stream := openTerminal(t)
			cmd.Stdin = stream
			asks := startCommand(t, cmd)
			asks.waitFor(verb + ` 2 nodes: .*\? \[y/N\] `)
			if _, err := testbed.Orders(p).Keys.Reject(f.Context(), operate.Named(wire.Identity(bad.Identity), ""), trust.Cause{By: "ben", Why: "not ours"}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(person, "y\n"); err != nil {
				t.Fatal(err)
			}
			<-asks.done
			if out := asks.output(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(out, bad.Identity+": ") ||
				!strings.Contains(out, "its key was rejected after the list was shown, by ben at ") || !strings.Contains(out, "1 of 2 nodes: each is ") {
				t.Errorf("exit %d:\n%s", cmd.ProcessState.ExitCode(), out)
			}
			if code := f.Refused(bad); code != wire.CodeRejected {
				t.Errorf("the node rejected meanwhile is refused with %s", code)
			}
			if verb == "approve" {
				f.Enroll(good)
			}
		})
	}
	f.Check()
}

// TestOrderForManyNodesStopsWithoutProvisioner stops the provisioner after the command asks and before the operator
// answers. The command reports this once, not for each node.
func TestOrderForManyNodesStopsWithoutProvisioner(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	for _, name := range []string{"web1.example.net", "web2.example.net", "web3.example.net"} {
		f.Refused(f.Node(name))
	}
	f.Eventually("all wait", func() bool {
		list, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "")
		return err == nil && len(list) == 3
	})
	var asking []*process
	var person []*os.File
	for _, verb := range []string{"approve", "reject", "forget"} {
		cmd := command(t, "node", verb, "--all", "--config", filepath.Join(f.Dir, "provisioner.yaml"))
		p, stream := openTerminal(t)
		cmd.Stdin = stream
		asks := startCommand(t, cmd)
		asks.waitFor(verb + ` 3 nodes: .*\? \[y/N\] `)
		asking, person = append(asking, asks), append(person, p)
	}
	f.Stop()
	for i, asks := range asking {
		if _, err := io.WriteString(person[i], "y\n"); err != nil {
			t.Fatal(err)
		}
		<-asks.done
		out := asks.output()
		if asks.cmd.ProcessState.ExitCode() != 1 || strings.Count(out, "no provisioner answers") != 1 || !strings.HasSuffix(out, "\nmuster: 3 nodes were not tried: run this again\n") {
			t.Errorf("exit %d:\n%s", asks.cmd.ProcessState.ExitCode(), out)
		}
	}
	f.Start()
	list, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "")
	if err != nil || len(list) != 3 {
		t.Errorf("%d wait, %v; want all three", len(list), err)
	}
}

// TestOrderIsDoneIfItsOutputIsLost writes the output of orders to a full disk.
func TestOrderIsDoneIfItsOutputIsLost(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	n := f.Node("web1.example.net")
	f.Refused(n)
	f.Eventually("it waits", func() bool {
		list, err := f.Daemon().Orders().Keys.Waiting(f.Context(), "")
		return err == nil && len(list) == 1
	})
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, order := range []string{"approve --all --yes", "approve web1.example.net", "revoke web1.example.net"} {
		if order == "revoke web1.example.net" {
			f.Enroll(n)
		}
		cmd := command(t, append(strings.Fields("node "+order), "-o", "json", "--config", filepath.Join(f.Dir, "provisioner.yaml"))...)
		var said strings.Builder
		cmd.Stdout, cmd.Stderr = full, &said
		_ = cmd.Run() // its status is looked at
		if says := "muster: it is done, but the answer could not be written: write /dev/stdout: no space left on device\n"; cmd.ProcessState.ExitCode() != 1 || said.String() != says {
			t.Errorf("%s: exit %d: %s", order, cmd.ProcessState.ExitCode(), said.String())
		}
	}
	f.Check()
}
