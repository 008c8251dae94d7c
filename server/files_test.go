package server_test

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/internal/testdisk"
	"muster/internal/wire"
	"muster/provisioner/ca"
	"muster/server"
)

// TestARegistrationFileThatIsAPipe is not waited for: it would be for ever.
func TestARegistrationFileThatIsAPipe(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	pipe := filepath.Join(t.TempDir(), "registration.json")
	makePipe(t, pipe)
	f.set(func() {
		f.enroll = func(r *wire.EnrollRequest) *wire.Reply {
			return &wire.Reply{ID: r.ID, Installation: "test", Enrolled: f.enrolled(r, func(_ *ca.Request, e *wire.Enrolled) {
				e.Configuration["registration_file"] = pipe
			})}
		}
	})
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	f.awaitLog(pipe, "not a file")
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
}

// makePipe makes a pipe to which nobody writes.
func makePipe(t *testing.T, path string) {
	t.Helper()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // whoever waits for a writer goes on
		if w, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
			_ = w.Close()
		}
	})
}

// TestAKeyThatIsAPipe is no key, in the set in force and in the one being made: the
// agent makes another, and does not wait for somebody to write to it, not even at a
// signal. The directory may be another user's.
func TestAKeyThatIsAPipe(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{"ssl", ".ssl.next"} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			if dir == "ssl" {
				f.member(t, cfg)
			} else {
				f.set(func() { f.enroll = refuse(wire.CodeApprovalPending, 0) })
				attempt(t, f, cfg, server.EventRefused)
				f.set(func() { f.enroll = nil })
			}
			key := filepath.Join(filepath.Dir(cfg.SSLDir), dir, "private.pem")
			if err := os.Remove(key); err != nil {
				t.Fatal(err)
			}
			makePipe(t, key)
			a := f.run(cfg)
			a.await(server.EventConfirmed, 1)
			a.await(server.EventConnected, 1)
		})
	}
}

// TestAServerConfThatIsTooLarge is set aside like anything else that is no
// configuration.
func TestAServerConfThatIsTooLarge(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	writeFile(t, cfg.ConfFile, strings.Repeat("#", 1<<20+1))
	f.run(cfg).await(server.EventConfirmed, 1)
}

// TestAStagedKeyThatCannotBeReadIsKept has the disk fail over the key that the
// provisioner may know the node by already.
func TestAStagedKeyThatCannotBeReadIsKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.set(func() { f.enroll = func(r *wire.EnrollRequest) *wire.Reply { f.issue(r); return nil } }) // issued, and the reply is lost
	cfg := f.node("web1.example.net")
	cfg.RequestTimeout = 100 * cfg.BackoffMin
	a := f.run(cfg)
	a.await(server.EventFailed, 1)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	first := f.requests()[0].CSR
	staged := filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.next", "private.pem")
	key := readFile(t, staged)
	if err := os.Remove(staged); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/mem", staged); err != nil { // reading it is an input/output error
		t.Fatal(err)
	}
	a = f.run(cfg)
	f.awaitLog("enrollment failed", "input/output error", "mend the disk")
	f.set(func() { f.enroll = nil })
	writeFile(t, staged, key) // the disk can be read again
	a.await(server.EventConfirmed, 1)
	for _, r := range f.requests() {
		if !slices.Equal(r.CSR, first) {
			t.Fatal("the node asks with another key, which the provisioner refuses for a name that belongs to the first")
		}
	}
}

// TestAStagedKeyOutlivesItsRequest has a disk damage the request beside a key that the
// provisioner may know the node by already, or something else lie in its place: another
// one is made for the same key. Only a key that has asked for another name goes.
func TestAStagedKeyOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	const id = "web1.example.net"
	for name, tt := range map[string]struct {
		damage   func(t *testing.T, csr string)
		identity string // of the agent after it; the same if empty
		says     string // in the log
		other    bool   // another key is made
	}{
		"gone":                 {damage: remove},
		"empty":                {damage: func(t *testing.T, csr string) { writeFile(t, csr, "") }, says: "staged request is damaged"},
		"cut short":            {damage: func(t *testing.T, csr string) { writeFile(t, csr, readFile(t, csr)[:100]) }, says: "staged request is damaged"},
		"too large":            {damage: func(t *testing.T, csr string) { writeFile(t, csr, strings.Repeat("x", wire.MaxCSRBytes+1)) }, says: "staged request is damaged"},
		"another key's":        {damage: func(t *testing.T, csr string) { writeFile(t, csr, newCSR(t, id)) }, says: "staged request is damaged"},
		"a directory":          {damage: func(t *testing.T, csr string) { remove(t, csr); writeFile(t, filepath.Join(csr, "x"), "x") }, says: "staged request is damaged"},
		"for another identity": {damage: func(*testing.T, string) {}, identity: "web2.example.net", says: "staged key dropped", other: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.set(func() { f.enroll = refuse(wire.CodeApprovalPending, time.Hour) })
			cfg := f.node(id)
			attempt(t, f, cfg, server.EventRefused)
			next := filepath.Join(filepath.Dir(cfg.SSLDir), ".ssl.next")
			key := readFile(t, filepath.Join(next, "private.pem"))
			tt.damage(t, filepath.Join(next, "request.csr"))
			f.set(func() { f.enroll = nil })
			cfg.Identity = cmp.Or(tt.identity, id)
			attempt(t, f, cfg, server.EventConfirmed)
			if got := readFile(t, filepath.Join(cfg.SSLDir, "private.pem")); (got != key) != tt.other {
				t.Errorf("another key: %v, want %v", got != key, tt.other)
			}
			f.checkTidy(t, cfg)
			for _, line := range []string{"staged request is damaged", "staged key dropped"} {
				if got := f.countLog(line); got > 1 || (got == 1) != (line == tt.says) {
					t.Errorf("logged %q %d times:\n%s", line, got, f.log.String())
				}
			}
		})
	}
}

// newCSR returns a certificate request for a name by a key of its own.
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

// TestASecondAgentTakesNoConfigurationAway starts a second node with a directory of
// its own, and with the first one's configuration, as it is by default.
func TestASecondAgentTakesNoConfigurationAway(t *testing.T) {
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
	f.awaitLog("enrollment failed", "is a link to the configuration of web1.example.net", "--config")
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	f.run(cfg).await(server.EventConnected, 1)
}

// TestAFileOfOthersReplacedDuringTheSwitch has somebody replace their file in the
// directory after it was carried over.
func TestAFileOfOthersReplacedDuringTheSwitch(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	theirs := filepath.Join(cfg.SSLDir, "theirs")
	writeFile(t, theirs, "old")
	cfg.SetSteps(func(name string) {
		if name == "carried" {
			writeFile(t, theirs, "new")
		}
	})
	f.run(cfg).await(server.EventConfirmed, 1)
	if got := readFile(t, theirs); got != "new" {
		t.Errorf("the file is %q, want what was written last, new", got)
	}
}

// TestADirectoryOfAnImageBelowAnOverlay has the directory be one that the file system
// cannot rename: the node says so, loses nothing, and goes on once it was made anew.
func TestADirectoryOfAnImageBelowAnOverlay(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"upper", "work", "merged", "lower/etc/ssl"} {
		if err := os.MkdirAll(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, at("lower/etc/ssl/theirs"), "theirs")
	err := unix.Mount("overlay", at("merged"), "overlay", 0, "lowerdir="+at("lower")+",upperdir="+at("upper")+",workdir="+at("work"))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at("merged"), unix.MNT_DETACH) })
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	cfg.ConfFile, cfg.SSLDir = at("merged/etc/server.conf"), at("merged/etc/ssl")
	a := f.run(cfg)
	f.awaitLog("enrollment failed", "lower layer of an overlay file system", "make the directory anew")
	// Step by step, as the remedy says. The agent goes on as soon as it can, which may be
	// before the last one.
	writeFile(t, at("merged/theirs"), readFile(t, at("merged/etc/ssl/theirs")))
	for _, step := range []func() error{
		func() error { return os.RemoveAll(at("merged/etc/ssl")) },
		func() error { return os.MkdirAll(at("merged/etc/ssl"), 0o755) },
		func() error { return os.Rename(at("merged/theirs"), at("merged/etc/ssl/theirs")) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	a.await(server.EventConfirmed, 1)
	if got := readFile(t, at("merged/etc/ssl/theirs")); got != "theirs" {
		t.Errorf("their file is %q", got)
	}
}

// TestNothingIsCarriedOutOfTheDirectory has whoever may write into the directory of a
// node, which need not be the agent's user, turn a directory of theirs into a link to
// somewhere else between the two times that files of others are carried over: the agent,
// which is root, must not make anything there.
func TestNothingIsCarriedOutOfTheDirectory(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	outside := t.TempDir()
	passwd := filepath.Join(outside, "passwd")
	writeFile(t, passwd, "root")
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(passwd, long, long); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(cfg.SSLDir, "theirs")
	if err := os.MkdirAll(cfg.SSLDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, theirs); err != nil {
		t.Fatal(err)
	}
	cfg.SetSteps(func(name string) {
		if name != "carried" {
			return
		}
		// The link is in the next set by now.
		if err := os.Remove(theirs); err != nil {
			t.Error(err)
		}
		writeFile(t, filepath.Join(theirs, "evil"), "evil")
		writeFile(t, filepath.Join(theirs, "passwd"), "evil")
	})
	f.run(cfg).await(server.EventConfirmed, 1)
	if _, err := os.Lstat(filepath.Join(outside, "evil")); err == nil {
		t.Error("the agent has made a file outside of its directory, through a link")
	}
	if got := readFile(t, passwd); got != "root" {
		t.Errorf("the agent has replaced a file outside of its directory by theirs: %q", got)
	}
}

// TestAFileThatIsProtectedIsToldOf has somebody protect the certificate of a node. Its set
// cannot be cleared away when another takes its place, and the renewal after that waits for it:
// both say what helps.
func TestAFileThatIsProtectedIsToldOf(t *testing.T) {
	t.Parallel()
	disk := testdisk.New(t, 32<<20)
	f := newFleet(t)
	f.set(func() { f.renewedLife = 34 * day })
	clock := newClock()
	cfg := f.node("web1.example.net")
	cfg.Now = clock.now
	cfg.ConfFile, cfg.SSLDir = filepath.Join(disk.Dir, "etc", "server.conf"), filepath.Join(disk.Dir, "etc", "ssl")
	a := f.run(cfg)
	a.await(server.EventConfirmed, 1)
	a.await(server.EventConnected, 1)
	chattr := func(flag, name string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "chattr", flag, filepath.Join(disk.Dir, "etc", name, "certificate.pem")).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	chattr("+i", "ssl")
	clock.advance(life * 3 / 4)
	a.await(server.EventConfirmed, 2)
	a.await(server.EventConnected, 2)
	f.awaitLog("old files not cleared away", "certificate.pem", "chattr -ia")
	clock.advance(life / 8) // three quarters of the second's life are over, too
	f.awaitLog("certificate not renewed", "certificate.pem", "chattr -ia")
	chattr("-i", ".ssl.next")
	a.await(server.EventConfirmed, 3)
}

// TestAConfigurationThatCannotBeReplacedIsNotAskedFor has server.conf lie where nobody can
// write: what the node would get it could not put in force, and each time that it asked
// would cost the provisioner a request, and a token a use.
func TestAConfigurationThatCannotBeReplacedIsNotAskedFor(t *testing.T) {
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
	disk.Mend()
	a.await(server.EventConfirmed, 1)
}

// TestWhatIsMountedIsNotAskedFor has server.conf, or the directory of the set, or something
// in it, be a mount point of its own, as containers have it: none can be switched, which the node is to
// know before it asks, since a certificate that it cannot put in force costs one all the
// same, and a token a use.
func TestWhatIsMountedIsNotAskedFor(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("mounting takes root")
	}
	for name, tt := range map[string]struct {
		path func(server.Config) string
		says string
	}{
		"server.conf":             {func(cfg server.Config) string { return cfg.ConfFile }, " is a mount point"},
		"the directory":           {func(cfg server.Config) string { return cfg.SSLDir }, " is a mount point"},
		"a file in the directory": {func(cfg server.Config) string { return filepath.Join(cfg.SSLDir, "mine") }, " is mounted inside the directory that is switched"},
		"a directory in it":       {func(cfg server.Config) string { return filepath.Join(cfg.SSLDir, "ours", "yours") }, " is mounted inside the directory that is switched"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			cfg := f.node("web1.example.net")
			writeFile(t, cfg.ConfFile, "provision = true\n")
			writeFile(t, filepath.Join(cfg.SSLDir, "mine"), "mine")
			writeFile(t, filepath.Join(cfg.SSLDir, "ours", "yours", "theirs"), "theirs")
			mounted := tt.path(cfg)
			if err := unix.Mount(mounted, mounted, "", unix.MS_BIND, ""); err != nil {
				t.Fatal(err)
			}
			unmount := sync.OnceFunc(func() { _ = unix.Unmount(mounted, unix.MNT_DETACH) })
			t.Cleanup(unmount)
			a := f.run(cfg)
			a.await(server.EventFailed, 3)
			f.awaitLog("enrollment failed", mounted+tt.says, "remedy=")
			if n := len(f.requests()); n > 0 {
				t.Errorf("asked %d times for what it cannot put in force", n)
			}
			findings, err := server.Doctor(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(findings, func(fi server.Finding) bool {
				return fi.Status == server.StatusFail && fi.What == "files" && strings.HasPrefix(fi.Detail, mounted+tt.says)
			}) {
				t.Errorf("the doctor does not say so: %+v", findings)
			}
			unmount()
			a.await(server.EventConfirmed, 1)
		})
	}
}

// TestAConfigurationThatCannotBeReadIsNotReplaced has server.conf be there and not be
// readable, as on a disk that fails: it may say that the node must not be provisioned.
func TestAConfigurationThatCannotBeReadIsNotReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	cfg := f.node("web1.example.net")
	writeFile(t, cfg.ConfFile, "provision = false\n")
	aside := cfg.ConfFile + ".aside"
	if err := os.Rename(cfg.ConfFile, aside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(cfg.ConfFile, cfg.ConfFile); err != nil { // cannot be opened by root either
		t.Fatal(err)
	}
	if err := f.run(cfg).end(); !errors.Is(err, server.ErrMode) || !strings.Contains(err.Error(), cfg.ConfFile) {
		t.Errorf("Run = %v, want %v, and which file", err, server.ErrMode)
	}
	if n := len(f.requests()); n > 0 {
		t.Errorf("asked %d times", n)
	}
	if err := os.Rename(aside, cfg.ConfFile); err != nil { // it can be read again
		t.Fatal(err)
	}
	if err := f.run(cfg).end(); !errors.Is(err, server.ErrMode) {
		t.Errorf("Run = %v, want %v: provision = false", err, server.ErrMode)
	}
}

// TestAKeyInForceThatCannotBeReadIsKept has a disk fail to read the key of a node that is
// provisioned: the node asks for nothing with another key, to which its name is taken, and
// goes on once it can be read.
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
	if err := os.Symlink(key, key); err != nil { // cannot be opened by root either
		t.Fatal(err)
	}
	a := f.run(cfg)
	a.await(server.EventFailed, 3)
	f.awaitLog("enrollment failed", key, "mend the disk")
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
