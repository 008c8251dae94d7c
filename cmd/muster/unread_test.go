package main

import (
	"bufio"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServicesSurviveLossOfTheirLogReader closes the pipe of a service's log. The service runs on, and exits with 0 on
// SIGTERM.
func TestServicesSurviveLossOfTheirLogReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+freePort(t))
	write(t, filepath.Join(dir, "broker.conf"), "listen: 127.0.0.1:-1\nauthorization { user: a, password: bcdefghijklmnopq }\n")
	for _, tt := range []struct {
		name    string
		args    []string
		serving string
	}{
		{"provisioner", []string{"provisioner", "run", "--config", "prov/provisioner.yaml"}, "provisioner is serving"},
		{"broker", []string{"broker", "run", "broker.conf"}, "broker is running"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			cmd := command(t, tt.args...)
			cmd.Dir, cmd.Stderr = dir, w
			if err := errors.Join(cmd.Start(), w.Close()); err != nil {
				t.Fatal(err)
			}
			lines, serves := bufio.NewScanner(log), false
			for !serves && lines.Scan() {
				serves = strings.Contains(lines.Text(), tt.serving)
			}
			if err := log.Close(); err != nil || !serves {
				t.Fatalf("serves %v, %v", serves, err)
			}
			if err := errors.Join(cmd.Process.Signal(syscall.SIGTERM), cmd.Wait()); err != nil {
				t.Errorf("it ended with %v, want status 0", err)
			}
		})
	}
}

// TestSIGHUPStopsServicesWithStatus0 sends SIGHUP to the provisioner and to the agent: both exit with 0.
func TestSIGHUPStopsServicesWithStatus0(t *testing.T) {
	t.Parallel()
	// A child process inherits ignored signals (nohup); handled signals are reset to their default.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP)
	defer signal.Stop(heard)
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+freePort(t))
	write(t, filepath.Join(dir, "secret"), "toomanysecrets\n")
	muster(t, dir, "jwt", "sign", "provisioning.jwt", "prov/signer-key.pem", "--default", "--secret-file", "secret", "--urls", "127.0.0.1:1")
	for serving, args := range map[string][]string{
		"provisioner is serving": {"provisioner", "run", "--config", "prov/provisioner.yaml"},
		"enrollment failed":      {"server", "run", "--token-file", "provisioning.jwt", "--ssl-dir", "node", "--config", "node/server.conf", "--identity", "web1.example.net"},
	} {
		p := start(t, dir, args...)
		p.waitFor(serving)
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.done:
		case <-time.After(patience):
			t.Fatalf("%s does not end", args)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("%s ended with %d:\n%s", args, code, p.output())
		}
	}
}
