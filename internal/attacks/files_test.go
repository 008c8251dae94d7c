package attacks_test

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/internal/testproc"
	"muster/jwt"
)

const stranger = 65534 // a user besides root and the one of this test

// A form is what an attacker or an accident makes of a file. prepare gets the path, at which there is nothing, and the
// file that was there.
type form struct {
	name    string
	says    string // in the refusal, besides the path
	safe    bool   // only a file whose integrity is judged is refused
	root    bool   // needs root
	prepare func(path, was string) error
}

var forms = []form{
	{name: "pipe", says: "is a pipe", prepare: func(path, _ string) error { return syscall.Mkfifo(path, 0o600) }},
	{name: "directory", says: "is a directory", prepare: func(path, _ string) error { return os.Mkdir(path, 0o700) }},
	{name: "device", says: "is a device", prepare: func(path, _ string) error {
		return os.Symlink("/dev/zero", path)
	}},
	{name: "too large", says: "more than", prepare: func(path, _ string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<30))
	}},
	{name: "writable", says: "chmod", safe: true, prepare: func(path, was string) error {
		return errors.Join(os.Link(was, path), os.Chmod(path, 0o777))
	}},
	{name: "of another user", says: "owned by user 65534", safe: true, root: true, prepare: func(path, was string) error {
		return errors.Join(os.Link(was, path), os.Chown(path, stranger, -1))
	}},
	{name: "another user's link", says: "a link that is owned by user 65534", safe: true, root: true,
		prepare: func(path, was string) error {
			return errors.Join(os.Symlink(was, path), os.Lchown(path, stranger, -1))
		}},
	{name: "in a directory open to others", says: "chmod go-w", safe: true, prepare: func(path, was string) error {
		open := path + ".d"
		return errors.Join(os.Mkdir(open, 0o700), os.Chmod(open, 0o777), os.Link(was, open+"/x"),
			os.Symlink(open+"/x", path))
	}},
}

// spoil gives a file a form until undo is called.
func (f *form) spoil(t testing.TB, path string) (undo func()) {
	t.Helper()
	was := path + ".was"
	info, err := os.Stat(path)
	if err == nil {
		err = errors.Join(os.Rename(path, was), f.prepare(path, was))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		err := errors.Join(os.RemoveAll(path), os.RemoveAll(path+".d"), os.Rename(was, path), os.Chmod(path, info.Mode()),
			os.Chown(path, os.Getuid(), -1))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// files makes an installation that names a file of every kind.
func files(t *testing.T) *target {
	t.Helper()
	tg := install(t)
	tg.write("policy/data.json", `{"racks": ["r1"]}`)
	tg.write("hook.secret", "whsec_"+strings.Repeat("YWJj", 8)+"\n")
	tg.write("hook.pem", tg.read("ca/root.pem"))
	tg.write("autosign", "#!/bin/sh\nexit 0\n")
	if err := errors.Join(os.Chmod(tg.path("autosign"), 0o700), os.Mkdir(tg.path("journal"), 0o700)); err != nil {
		t.Fatal(err)
	}
	tg.edit("provisioner.yaml", "\nwaiting:\n", "\nwaiting:\n  autosign: {command: [./autosign, prov/autosign.rules]}\n")
	tg.write("autosign.rules", "none\n")
	tg.edit("provisioner.yaml", "# journal: data/", "journal: journal/")
	tg.write("provisioner.yaml", tg.read("provisioner.yaml")+
		"\nwebhooks: [{name: hook, url: 'https://127.0.0.1:1/', secret: hook.secret, ca: hook.pem}]\n")
	return tg
}

// TestOddFilesOfTheProvisioner gives each file that a provisioner names each form. It ends at once, names the file, and
// tells the service manager not to start it again.
func TestOddFilesOfTheProvisioner(t *testing.T) {
	t.Parallel()
	tg := files(t)
	tg.start() // makes the files of the store
	tg.stop()
	// The mistakes of files in one group are reported together.
	several := []string{"signer.pem", "ca/root.pem", "ca/issuing.pem", "ca/issuing-key.pem", "seal-key.pem",
		"server.conf", "hook.secret", "hook.pem", "policy/open.rego"}
	for _, f := range forms {
		groups := [][]string{several, {"provisioner.yaml"}, {"policy/data.json"}}
		switch {
		case f.safe:
			groups = append(groups, []string{"autosign"}, []string{"autosign.rules"})
		case f.name != "too large":
			groups = append(groups, []string{"journal/revocations.journal"}, []string{"data/store.watermark"},
				[]string{"data/broker/broker.lock"})
		}
		if f.root && os.Getuid() != 0 {
			continue
		}
		for _, names := range groups {
			tg.refusesAll(&f, names)
		}
	}
	if err := os.Chmod(tg.path("journal"), 0o777); err != nil {
		t.Fatal(err)
	}
	p := launch(t, tg.dir, "muster", "provisioner", "run", "--config", "prov/provisioner.yaml")
	if status := p.exit(); status != 78 || !strings.Contains(p.output(), "chmod go-w "+tg.path("journal")) {
		t.Errorf("a journal in a directory open to others: exit %d: %s", status, last(p.output(), 2000))
	}
	if err := os.Chmod(tg.path("journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	p = launch(t, tg.path(""), "muster", "provisioner", "run", "--config", "provisioner.yaml", "--validate")
	if p.exit(); strings.Contains(p.output(), "autosign") {
		t.Errorf("autosign beside a configuration in the working directory: %s", p.output())
	}
	tg.start()
	tg.stop()
}

// refusesAll gives the files a form, and starts the provisioner.
func (tg *target) refusesAll(f *form, names []string) {
	tg.t.Helper()
	for _, name := range names {
		defer f.spoil(tg.t, tg.path(name))()
	}
	p := launch(tg.t, tg.dir, "muster", "provisioner", "run", "--config", "prov/provisioner.yaml")
	status, want := p.exit(), 78
	if strings.HasPrefix(names[0], "data/") || strings.HasPrefix(names[0], "journal/") {
		want = 1 // a disk may be mounted later
	}
	if status != want {
		tg.t.Errorf("%v as %s: exit %d, want %d", names, f.name, status, want)
	}
	for _, name := range names {
		said := false
		for line := range strings.Lines(p.output()) {
			// Of a secret, the other users' access is refused first.
			exposed := f.name == "writable" && strings.Contains(line, "chmod 600")
			said = said || strings.Contains(line, filepath.Base(name)) && (exposed || strings.Contains(line, f.says))
		}
		if !said {
			tg.t.Errorf("%s as %s: no line says %q:\n%s", name, f.name, f.says, last(p.output(), 2000))
		}
	}
}

// TestOddFilesWhileTheProvisionerRuns puts a pipe into the place of files that are read again, for a moment. The
// provisioner says so, goes on with what it has, and ends at SIGTERM while a pipe is there.
func TestOddFilesWhileTheProvisionerRuns(t *testing.T) {
	t.Parallel()
	tg := files(t)
	tg.write("api.pem", certify(t, tg.signer, time.Hour))
	tg.write("api-key.pem", string(keyPEM(t, tg.signer)))
	tg.edit("provisioner.yaml", "  names: [localhost]\n  addresses: [127.0.0.1]\n",
		"  certificate: api.pem\n  key: api-key.pem\n")
	tg.start()
	handshake := func() error {
		d := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		conn, err := d.DialContext(within(t), "tcp", tg.api)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	pipe := forms[0]
	for _, name := range []string{"policy/data.json", "api.pem", "api-key.pem"} {
		undo := pipe.spoil(t, tg.path(name))
		if strings.HasPrefix(name, "policy/") {
			tg.p.waitFor("policy not reloaded")
			tg.p.waitFor("data.json: is a pipe")
		}
		if err := handshake(); err != nil {
			t.Errorf("%s as pipe: %v", name, err)
		}
		undo()
	}
	writable := forms[4]
	undo := writable.spoil(t, tg.path("policy/data.json"))
	tg.p.waitFor("data.json: mode 0777 lets other users change it")
	undo()
	pipe.spoil(t, tg.path("policy/data.json"))
	pipe.spoil(t, tg.path("api.pem"))
	tg.stop()
}

// TestOddFilesOfTheBroker gives forms to the configuration of a broker.
func TestOddFilesOfTheBroker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	conf := filepath.Join(dir, "nats.conf")
	text := "listen: 127.0.0.1:-1\nauthorization {user: a, password: b}\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range forms[:3] {
		undo := f.spoil(t, conf)
		p := launch(t, dir, "muster", "broker", "run", "nats.conf")
		if status := p.exit(); status != 78 || !strings.Contains(p.output(), "nats.conf: "+f.says) {
			t.Errorf("%s: exit %d: %s", f.name, status, p.output())
		}
		undo()
	}
}

// TestOddFilesOfTheAgent gives each file of an agent each form. The agent never hangs: it names the file, and SIGTERM
// ends it.
func TestOddFilesOfTheAgent(t *testing.T) {
	t.Parallel()
	tg := newTarget(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{
		"token":        tg.token(func(c *jwt.Claims) { c.Registration = "registration" }) + "\n",
		"facts":        "role: web\n",
		"registration": "{}\n",
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--token-file", "token", "--config", "server.conf", "--ssl-dir", "ssl", "--facts", "facts",
		"--identity", "web1.example.net"}
	start := func() *process { return launch(t, dir, "muster-server", append([]string{"run"}, args...)...) }
	p := start()
	p.waitFor("node provisioned")
	p.signal(syscall.SIGTERM)
	p.exit()
	for _, name := range []string{"token", "facts", "server.conf", "ssl/private.pem", "ssl/certificate.pem",
		"ssl/ca.pem", "ssl/.lock", "registration"} {
		for _, f := range forms {
			if f.name == "too large" && name == "ssl/.lock" || f.safe && strings.HasPrefix(name, "ssl/") ||
				!f.safe && name == "registration" ||
				f.root && os.Getuid() != 0 {
				continue
			}
			undo := f.spoil(t, at(name))
			says := f.says
			if name == "facts" && f.name == "too large" {
				says = "too large: "
			}
			if said := doctor(t, dir, args); name != "ssl/.lock" && !strings.Contains(said, says) {
				t.Errorf("%s as %s: doctor does not say %q:\n%s", name, f.name, says, said)
			}
			if f.name == "pipe" {
				p := start()
				eventually(t, name+" as pipe: the agent says what it does", func() bool { return p.output() != "" })
				p.signal(syscall.SIGTERM)
				p.exit()
			}
			undo()
		}
	}
	sslDirs(t, dir, start)
}

func doctor(t *testing.T, dir string, args []string) string {
	t.Helper()
	cmd := exec.CommandContext(within(t), program(t, "muster-server"), append([]string{"doctor"}, args...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out)
}

// sslDirs tries directories of the key that another user could replace: the agent does not start with them.
func sslDirs(t *testing.T, dir string, start func() *process) {
	t.Helper()
	ssl := filepath.Join(dir, "ssl")
	for name, change := range map[string][2]func() error{
		"writable": {func() error { return os.Chmod(ssl, 0o777) }, func() error { return os.Chmod(ssl, 0o700) }},
		"of another user": {func() error { return os.Chown(ssl, stranger, -1) },
			func() error { return os.Chown(ssl, 0, -1) }},
		"another user's link": {
			func() error {
				return errors.Join(os.Rename(ssl, ssl+".was"), os.Symlink(ssl+".was", ssl), os.Lchown(ssl, stranger, -1))
			},
			func() error { return errors.Join(os.Remove(ssl), os.Rename(ssl+".was", ssl)) },
		},
	} {
		if os.Getuid() != 0 && name != "writable" {
			continue
		}
		if err := change[0](); err != nil {
			t.Fatal(err)
		}
		p := start()
		if status := p.exit(); status == 0 || !strings.Contains(p.output(), "lets other users change it") &&
			!strings.Contains(p.output(), "lets other users") {
			t.Errorf("ssl-dir %s: exit %d: %s", name, status, p.output())
		}
		if err := change[1](); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTypedPipesAreRead signs with a key and a secret that other programs write into pipes, as shells do for <(…). A
// pipe without a writer, or with an endless one, ends in one line.
func TestTypedPipesAreRead(t *testing.T) {
	t.Parallel()
	testproc.Needs(t, "bash")
	tg := install(t)
	muster := program(t, "muster")
	for name, tt := range map[string]struct{ args, says string }{
		"both by substitution": {`<(sleep 0.2; cat prov/signer-key.pem) --secret-file <(echo hush)`, "Saved token"},
		"standard input":       {`prov/signer-key.pem --secret-file /dev/stdin <<<hush`, "Saved token"},
		"without a writer":     {`prov/signer-key.pem --secret-file pipe`, "pipe: empty"},
		"without an end":       {`prov/signer-key.pem --secret-file <(yes)`, "more than 4096 bytes"},
		"a directory":          {`prov/signer-key.pem --secret-file prov`, "is a directory"},
	} {
		if err := syscall.Mkfifo(filepath.Join(tg.dir, "pipe"), 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(within(t), "bash", "-c", muster+" jwt sign --force t.jwt --urls b:1 "+tt.args)
		cmd.Dir = tg.dir
		begun := time.Now()
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), tt.says) || time.Since(begun) > patience/2 {
			t.Errorf("%s: after %v: %s, want %q", name, time.Since(begun), out, tt.says)
		}
	}
	token, err := os.ReadFile(filepath.Join(tg.dir, "t.jwt"))
	if err != nil {
		t.Fatal(err)
	}
	if c, err := jwt.Peek(strings.TrimSpace(string(token))); err != nil || string(c.Token) != "hush" {
		t.Errorf("the token's secret is not what the pipe had: %v", err)
	}
}
