package server_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"muster/server"
)

// The agent is killed after each step of a renewal. The next one ends with the new set and repeats the same request.
func TestKilledWhileRenewing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	prepare := func(t *testing.T) (server.Config, job) {
		cfg := f.node("web1.example.net")
		j := newJob(cfg)
		j.Later, j.Until = life*3/4, server.EventConfirmed
		at, _ := f.member(t, cfg)
		return at(life * 3 / 4), j
	}
	cfg, _ := prepare(t)
	var steps []string
	cfg.SetSteps(func(name string) { steps = append(steps, name) })
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	if len(steps) < 15 || !slices.Contains(steps, "renewal answered") || !slices.Contains(steps, "switched") {
		t.Fatalf("steps = %q", steps)
	}
	eachStep(t, steps, func(t *testing.T, step string, occurrence int) {
		cfg, j := prepare(t)
		j.KillAfter, j.Occurrence = step, occurrence
		f.killRenewal(t, cfg, j)
	})
}

func (f *fleet) killRenewal(t *testing.T, cfg server.Config, j job) {
	before := snapshot(t, cfg)
	f.set(func() { f.renews, f.enrolls = nil, nil })
	cmd, stderr := startChild(t, j)
	err := cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("child ended with %v, want it killed; it said:\n%s", err, stderr.String())
	}
	shows := snapshot(t, cfg)
	switch {
	case strings.Contains(shows["CONF"], "generation = new"):
		f.checkNew(t, shows, false)
	case shows["private.pem"] != before["private.pem"] || shows["certificate.pem"] != before["certificate.pem"] ||
		shows["CONF"] != before["CONF"]:
		t.Errorf("neither the old set nor the new: %q", shows)
	}
	a := f.run(cfg)
	a.await(server.EventConnected, 1)
	f.await("the new set, confirmed", func() bool {
		_, err := os.Stat(filepath.Join(cfg.SSLDir, "..data", "applied.json"))
		return err != nil && strings.Contains(readFile(t, cfg.ConfFile), "generation = new")
	})
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.checkNew(t, snapshot(t, cfg), false)
	f.checkTidy(t, cfg)
	renewals := f.renewals()
	for _, r := range renewals {
		if !bytes.Equal(r.CSR, renewals[0].CSR) {
			t.Error("another key or certificate request after the restart")
		}
	}
	if len(f.requests()) > 0 {
		t.Error("the node enrolled again")
	}
}
