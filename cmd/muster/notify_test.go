package main

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServicesNotifyTheirManager starts each daemon as systemd does with Type=notify and WatchdogSec: it is ready, also an
// agent whose broker does not answer, then feeds the watchdog, and stops. A broker also reloads.
func TestServicesNotifyTheirManager(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	muster(t, dir, "provisioner", "init", "prov", "--host", "localhost", "--trust-domain", "example.net", "--listen", "127.0.0.1:"+freePort(t))
	write(t, filepath.Join(dir, "broker.conf"), "listen: 127.0.0.1:-1\nauthorization { user: a, password: bcdefghijklmnopq }\n")
	write(t, filepath.Join(dir, "secret"), "toomanysecrets\n")
	muster(t, dir, "jwt", "sign", "provisioning.jwt", "prov/signer-key.pem", "--default", "--secret-file", "secret", "--urls", "127.0.0.1:1")
	for name, args := range map[string][]string{
		"provisioner": {"provisioner", "run", "--config", "prov/provisioner.yaml"},
		"broker":      {"broker", "run", "broker.conf"},
		"agent":       {"server", "run", "--token-file", "provisioning.jwt", "--ssl-dir", "node", "--config", "node/server.conf", "--identity", "web1.example.net"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(t.TempDir(), "s")
			manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			defer manager.Close()
			cmd := command(t, args...)
			cmd.Dir = dir
			cmd.Env = append(cmd.Environ(), "NOTIFY_SOCKET="+socket, "WATCHDOG_USEC=60000000")
			p := startCommand(t, cmd)
			wantNotified(t, manager, "READY=1", "WATCHDOG=1", "WATCHDOG=1")
			if name == "broker" {
				signalProcess(t, p, syscall.SIGHUP)
				wantNotified(t, manager, "RELOADING=1\nMONOTONIC_USEC=", "READY=1")
			}
			signalProcess(t, p, syscall.SIGTERM)
			wantNotified(t, manager, "STOPPING=1")
			<-p.done
			if code := p.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("ended with %d, want 0", code)
			}
		})
	}
}

// wantNotified waits for notifications that begin so, in this order. Between them the watchdog may be fed.
func wantNotified(t *testing.T, manager *net.UnixConn, want ...string) {
	t.Helper()
	if err := manager.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	for _, w := range want {
		for got := ""; !strings.HasPrefix(got, w); {
			n, err := manager.Read(b)
			if err != nil {
				t.Fatalf("no %q: %v", w, err)
			}
			if got = string(b[:n]); !strings.HasPrefix(got, w) && got != "WATCHDOG=1" {
				t.Fatalf("notified of %q, want %q", got, w)
			}
		}
	}
}

func signalProcess(t *testing.T, p *process, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
