package server_test

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/internal/testdisk"
	"muster/internal/wire"
	"muster/server"
)

// The request beside a staged key is damaged or missing: the agent makes a new one for the same key, which the
// provisioner may know already. It drops only a key that has requested another name.
func TestAStagedKeyOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	const id = "web1.example.net"
	for name, tt := range map[string]struct {
		damage   func(t *testing.T, csr string)
		identity string // of the next agent; empty: the same
		says     string // in the log
		other    bool   // another key is made
	}{
		"gone": {damage: remove, says: "staged certificate request is damaged"},
		"empty": {damage: func(t *testing.T, csr string) {
			writeFile(t, csr, "")
		}, says: "staged certificate request is damaged"},
		"cut short": {damage: func(t *testing.T, csr string) {
			writeFile(t, csr, readFile(t, csr)[:100])
		}, says: "staged certificate request is damaged"},
		"too large": {damage: func(t *testing.T, csr string) {
			writeFile(t, csr, strings.Repeat("x", wire.MaxCSRBytes+1))
		}, says: "staged certificate request is damaged"},
		"another key's": {damage: func(t *testing.T, csr string) {
			writeFile(t, csr, newCSR(t, id))
		}, says: "staged certificate request is damaged"},
		"a directory": {damage: func(t *testing.T, csr string) {
			remove(t, csr)
			writeFile(t, filepath.Join(csr, "x"), "x")
		}, says: "staged certificate request is damaged"},
		"for another identity": {
			damage:   func(*testing.T, string) {},
			identity: "web2.example.net",
			says:     "staged key discarded",
			other:    true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.set(func() { f.enroll = refuse(wire.CodeApprovalPending, time.Hour) })
			cfg := f.node(id)
			attempt(t, f, cfg, server.EventRefused)
			next := filepath.Join(cfg.SSLDir, "..next")
			key := readFile(t, filepath.Join(next, "private.pem"))
			tt.damage(t, filepath.Join(next, "request.csr"))
			f.set(func() { f.enroll = nil })
			cfg.Identity = cmp.Or(tt.identity, id)
			attempt(t, f, cfg, server.EventConfirmed)
			if got := readFile(t, filepath.Join(cfg.SSLDir, "private.pem")); (got != key) != tt.other {
				t.Errorf("another key: %v, want %v", got != key, tt.other)
			}
			f.checkTidy(t, cfg)
			for _, line := range []string{"staged certificate request is damaged", "staged key discarded"} {
				if got := f.countLog(line); got > 1 || (got == 1) != (line == tt.says) {
					t.Errorf("logged %q %d times:\n%s", line, got, f.log.String())
				}
			}
		})
	}
}

// newCSR returns a certificate request with a new key.
func newCSR(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{name}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(csr)
}

// A second node has its own directory, but the first one's configuration path, the default.
func TestASecondAgentLeavesTheFirstOnesConfiguration(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("")
	cfg.SetMachineName("web1.example.net")
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	second := cfg
	second.Identity, second.SSLDir = "web2.example.net", filepath.Join(filepath.Dir(cfg.SSLDir), "ssl2")
	b := f.run(second)
	b.await(server.EventFailed, 1)
	f.awaitLog("enrollment failed", "it is a link into another set", "--config")
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.run(cfg).await(server.EventConnected, 1)
}

// server.conf cannot be replaced. The node could not use what it would get, and each request would cost work and
// perhaps a use.
func TestANodeDoesNotEnrollIfItsConfigurationCannotBeReplaced(t *testing.T) {
	t.Parallel()
	disk := testdisk.New(t, 32<<20)
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.ConfFile = filepath.Join(disk.Dir, "etc", "server.conf")
	writeFile(t, cfg.ConfFile, "provision = true\n")
	if err := unix.Mount("", disk.Dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	a := f.run(cfg)
	a.await(server.EventFailed, 3)
	f.awaitLog("enrollment failed", cfg.ConfFile, "read-only", "remedy=")
	if n := len(f.requests()); n > 0 {
		t.Errorf("asked %d times for what it cannot put in force", n)
	}
	disk.Remount()
	a.await(server.EventConfirmed, 1)
}

// server.conf exists but cannot be read, as on a failing disk: it may forbid provisioning.
func TestAConfigurationThatCannotBeReadIsNotReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	writeFile(t, cfg.ConfFile, "provision = false\n")
	aside := cfg.ConfFile + ".aside"
	if err := os.Rename(cfg.ConfFile, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(cfg.ConfFile, cfg.ConfFile); err != nil { // root cannot open it either
		t.Fatal(err)
	}
	if err := f.run(cfg).end(); !errors.Is(err, server.ErrMode) || !strings.Contains(err.Error(), cfg.ConfFile) {
		t.Errorf("Run = %v, want %v, and which file", err, server.ErrMode)
	}
	if n := len(f.requests()); n > 0 {
		t.Errorf("asked %d times", n)
	}
	if err := os.Rename(aside, cfg.ConfFile); err != nil { // readable again
		t.Fatal(err)
	}
	if err := f.run(cfg).end(); !errors.Is(err, server.ErrMode) {
		t.Errorf("Run = %v, want %v: provision = false", err, server.ErrMode)
	}
}

// The key of a provisioned node cannot be read. The node requests nothing with another key, for which its name is
// taken, and goes on once the key is readable.
func TestAKeyInForceThatCannotBeReadIsKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	_, serial := f.member(t, cfg)
	asked := len(f.requests())
	key := filepath.Join(cfg.SSLDir, "private.pem")
	if err := os.Rename(key, key+".aside"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(key, key); err != nil { // root cannot open it either
		t.Fatal(err)
	}
	a := f.run(cfg)
	a.await(server.EventFailed, 3)
	f.awaitLog("enrollment failed", key, "repair the disk")
	if n := len(f.requests()); n > asked {
		t.Errorf("asked %d times with another key", n-asked)
	}
	if err := os.Rename(key+".aside", key); err != nil {
		t.Fatal(err)
	}
	if got := a.await(server.EventConnected, 1).Serial; got != serial {
		t.Errorf("back with certificate %s, want %s", got, serial)
	}
}
