package main

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestALogThatNobodyReadsEndsNobody has the program that reads a log end, as when it is
// started anew: who serves goes on, and ends well when told to, about which it has more
// to say.
func TestALogThatNobodyReadsEndsNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--name", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+freePort(t))
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
