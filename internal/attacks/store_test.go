package attacks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"muster/internal/simnode"
	"muster/internal/testproc"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner/store"
)

// blocks returns the files with the messages of a stream below a broker's store.
func blocks(t testing.TB, dir, stream string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jetstream/*/streams", stream, "msgs/*.blk"))
	if err != nil || len(found) == 0 {
		t.Fatalf("%s has no blocks below %s: %v", stream, dir, err)
	}
	return found
}

// rewrite changes a file's content.
func rewrite(t testing.TB, path string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, change(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flipAt(at func(size int) int) func(testing.TB, string) {
	return func(t testing.TB, block string) {
		t.Helper()
		rewrite(t, block, func(b []byte) []byte { b[at(len(b))] ^= 0x20; return b })
	}
}

// damages are what a disk does to one block.
var damages = []struct {
	what string
	do   func(t testing.TB, block string)
}{
	{"the stream's description, removed", func(t testing.TB, block string) { removeAll(t, block, "../meta.inf") }},
	{"a byte flipped in the first message", flipAt(func(int) int { return 60 })},
	{"a byte flipped in the middle", flipAt(func(size int) int { return size / 2 })},
	{"a byte flipped in the last message", flipAt(func(size int) int { return size - 20 })},
	{"a block cut to half", cutTo(func(size int) int { return size / 2 })},
	{"a block without its last byte", cutTo(func(size int) int { return size - 1 })},
	{"a block of zeros", zero},
	{"the directory of the stream, removed", func(t testing.TB, block string) { removeAll(t, block, "..") }},
	{"a block removed", remove},
}

// alike are damages that a start finds by the same comparison as another row: damagedAllWays has all rows.
var alike = []string{
	"a byte flipped in the first message", "a block without its last byte", "a block of zeros", "a block removed",
}

const damagedAllWays = "MUSTER_NODES"

func cutTo(to func(size int) int) func(testing.TB, string) {
	return func(t testing.TB, block string) {
		t.Helper()
		rewrite(t, block, func(b []byte) []byte { return b[:to(len(b))] })
	}
}

func zero(t testing.TB, block string) {
	t.Helper()
	rewrite(t, block, func(b []byte) []byte { return make([]byte, len(b)) })
}

func remove(t testing.TB, block string) {
	t.Helper()
	if err := os.Remove(block); err != nil {
		t.Fatal(err)
	}
}

func removeAll(t testing.TB, block, what string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(filepath.Dir(block), what)); err != nil {
		t.Fatal(err)
	}
}

// filled makes an installation with content in each stream of records: two nodes with states of service
// certificates, a limited token with two uses, a revocation and a pause that ended. It runs.
func filled(t testing.TB, tg *target) (limited string) {
	t.Helper()
	tg.start()
	tg.provision("web1.example.net")
	n, e := tg.provision("web2.example.net")
	tg.provision("bad.example.net")
	fleet, err := n.DialFleet("nats://"+tg.broker, e)
	if err != nil {
		t.Fatal(err)
	}
	defer fleet.Close()
	for _, name := range []string{"https", "ldap", "smtp"} {
		b, err := wire.Encode(&wire.CertificateRequest{ID: wire.NewID(), Identity: n.Identity, Name: name, Source: "file",
			Verb: wire.CertificateReport, Report: &wire.CertificateState{State: "wanted", Since: time.Now()}})
		if err == nil {
			_, err = fleet.RequestWithContext(within(t), wire.SubjectCertificate, b)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	limited = tg.token(func(c *jwt.Claims) {
		c.JTI, c.IssuedAt = wire.NewID(), time.Now().Add(-time.Minute)
		if err := c.SetLimits(jwt.Limits{Uses: 3}); err != nil {
			t.Fatal(err)
		}
	})
	for i := range 2 {
		n := tg.node(fmt.Sprintf("db%d.example.net", i), limited)
		if r := tg.ask(tg.dial(limited), n.Request()); r.Enrolled == nil {
			t.Fatalf("%s: %+v", n.Identity, r.Refusal)
		}
	}
	tg.must("node", "revoke", "bad.example.net", "--why", "stolen")
	tg.must("pause", "--why", "a test")
	tg.must("resume", "--why", "a test")
	return limited
}

// awaitMark waits until the watermark has all of [filled] with that many revocations, as it does within seconds.
func (tg *target) awaitMark(revocations uint64) {
	tg.t.Helper()
	eventually(tg.t, "the watermark has all records", func() bool {
		f, w, err := store.OpenWatermark(tg.path("data/store.watermark"))
		if err != nil {
			tg.t.Fatal(err)
		}
		_ = f.Close() // only read
		return w != nil && w.Streams["MUSTER_NODES"].Messages >= 8+revocations &&
			w.Streams["MUSTER_REVOCATIONS"].Messages >= revocations && w.Streams["MUSTER_CLAIMS"].Messages > 1 &&
			w.Streams["MUSTER_ENTRIES"].Messages > 3 && w.Streams["MUSTER_CERTIFICATES"].Messages > 2
	})
}

// save copies the data directory, restore puts the copy back.
func (tg *target) save(to string) {
	tg.t.Helper()
	_ = os.Remove(tg.path("data/control.sock")) // it is no file
	if err := os.CopyFS(to, os.DirFS(tg.path("data"))); err != nil {
		tg.t.Fatal(err)
	}
}

func (tg *target) restore(from string) {
	tg.t.Helper()
	data := tg.path("data")
	if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(from)), os.Chmod(data, 0o700),
		filepath.WalkDir(data, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				err = os.Chmod(path, 0o600)
			}
			return err
		})); err != nil {
		tg.t.Fatal(err)
	}
}

// refusesToStart starts the provisioner: it ends with status 78 and one line that has each of the texts, and serves
// nothing.
func (tg *target) refusesToStart(what string, texts ...string) {
	tg.t.Helper()
	tg.run()
	status, out := tg.p.exit(), tg.p.output()
	if status != 78 || strings.Contains(out, "provisioner is serving") {
		tg.t.Errorf("%s: status %d, want 78 before it serves:\n%s", what, status, last(out, 2000))
	}
	line := last(out, len(out)-strings.LastIndex(out, "\nmuster: ")-1)
	for _, text := range texts {
		if !strings.Contains(line, text) {
			tg.t.Errorf("%s: %q, want %q in it", what, line, text)
		}
	}
}

// TestDamagedStoreIsNotServed damages each stream of records after a kill and after an orderly stop. No start serves,
// and the line names what is lost. The remedy that it names works: after an accepted loss no other key gets a name
// that was provisioned, and revocations stand.
func TestDamagedStoreIsNotServed(t *testing.T) {
	t.Parallel()
	for ended, end := range map[string]func(*target){"killed": (*target).kill, "stopped": (*target).stop} {
		t.Run(ended, func(t *testing.T) {
			t.Parallel()
			tg := install(t)
			limited := filled(t, tg)
			tg.awaitMark(1)
			end(tg)
			from := filepath.Join(t.TempDir(), "data")
			tg.save(from)
			for _, stream := range store.DurableStreams() {
				for _, d := range damages {
					if ended == "stopped" && !strings.Contains(d.what, "flipped") {
						continue // an index hides the content of blocks only
					}
					if stream != damagedAllWays && slices.Contains(alike, d.what) {
						continue
					}
					tg.restore(from)
					d.do(t, blocks(t, tg.path("data/broker"), stream)[0])
					tg.refusesToStart(stream+", "+d.what, "--accept-loss")
				}
				tg.acceptLoss(stream, limited)
			}
		})
	}
}

func (tg *target) acceptLoss(what, limited string) {
	tg.t.Helper()
	tg.must("recovery", "begin", "--accept-loss", "--why", what)
	tg.start()
	for identity, token := range map[string]string{
		"web1.example.net": tg.token(nil), "bad.example.net": tg.token(nil), "db2.example.net": limited,
	} {
		thief := tg.node(identity, token)
		if r := tg.ask(tg.dial(token), thief.Request()); r.Enrolled != nil {
			tg.t.Errorf("after the loss of %s another key gets %s", what, identity)
		}
	}
	tg.stop()
}

// TestWatermarkAttacks changes the files that count the store, and the journal of revocations.
func TestWatermarkAttacks(t *testing.T) {
	t.Parallel()
	tg := install(t)
	tg.start()
	mark, journal := tg.path("data/store.watermark"), tg.path("data/revocations.journal")
	early, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	tg.stop()
	filled(t, tg)
	tg.must("node", "revoke", "web2.example.net", "--why", "stolen too")
	tg.must("backup", "whole.backup")
	tg.must("node", "revoke", "web1.example.net", "--why", "stolen at last")
	tg.awaitMark(3)
	tg.kill()
	from := filepath.Join(t.TempDir(), "data")
	tg.save(from)
	lines := func(edit func([][]byte) [][]byte) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Join(edit(bytes.SplitAfter(b, []byte("\n"))), nil) }
	}
	for what, tt := range map[string]struct {
		file    string
		change  func([]byte) []byte
		refused string // "" if the start serves
	}{
		"a watermark removed":       {mark, nil, "its watermark"},
		"a watermark of zeros":      {mark, func(b []byte) []byte { clear(b); return b }, "its watermark"},
		"a watermark cut":           {mark, func(b []byte) []byte { return b[:30] }, "its watermark"},
		"an older watermark":        {mark, func([]byte) []byte { return early }, ""},
		"a journal removed":         {journal, nil, ""},
		"a journal without its end": {journal, lines(func(l [][]byte) [][]byte { return l[:len(l)-2] }), ""},
		"a journal cut in a line":   {journal, func(b []byte) []byte { return b[:len(b)-30] }, ""},
		"another node's name": {
			journal, func(b []byte) []byte { return bytes.Replace(b, []byte("bad.example"), []byte("dab.example"), 1) },
			"line 2",
		},
		"two lines swapped": {
			journal, lines(func(l [][]byte) [][]byte { l[1], l[2] = l[2], l[1]; return l }), "line 2",
		},
		"a line twice": {
			journal, lines(func(l [][]byte) [][]byte { return append(l[:2:2], l[1:]...) }), "line 3",
		},
		"an inner line removed": {
			journal, lines(func(l [][]byte) [][]byte { return append(l[:1:1], l[2:]...) }), "line 2",
		},
	} {
		tg.restore(from)
		if tt.change == nil {
			remove(t, tt.file)
		} else {
			rewrite(t, tt.file, tt.change)
		}
		if tt.refused != "" {
			tg.refusesToStart(what, tt.refused)
			continue
		}
		tg.start()
		if thief := tg.node("bad.example.net", tg.token(nil)); tg.ask(tg.dial(thief.Token), thief.Request()).Enrolled != nil {
			t.Errorf("%s: another key gets a revoked name", what)
		}
		for _, name := range []string{"bad", "web1", "web2"} {
			if !strings.Contains(tg.read("data/revocations.journal"), name+".example.net") {
				t.Errorf("%s: the journal lacks %s", what, name)
			}
		}
		tg.stop()
	}
	// A restore counts too: the cut line is in no backup.
	tg.restore(from)
	rewrite(t, journal, lines(func(l [][]byte) [][]byte { return l[:len(l)-2] }))
	removeAll(t, tg.path("data/broker"), "broker")
	if out, err := tg.muster("restore", "whole.backup"); err == nil ||
		!strings.Contains(out, "backup and journal have 2 revocations, but on ") {
		t.Errorf("restore with a journal that was cut: %v, %s", err, out)
	}
	tg.must("restore", "whole.backup", "--accept-loss")
}

// A separate is an installation whose broker is a process of its own.
type separate struct {
	*target
	b     *process // the broker
	store string   // its directory
}

func newSeparate(t testing.TB) *separate {
	t.Helper()
	dir := t.TempDir()
	s := &separate{
		target: &target{t: t, dir: dir, broker: net.JoinHostPort("127.0.0.1", testproc.FreePort(t))},
		store:  filepath.Join(dir, "n1/store"),
	}
	s.must("provisioner", "init", "prov", "--host", "p.attacks.test", "--trust-domain", "attacks.test",
		"--broker-urls", "nats://"+s.broker, "--replicas", "1", "--trust-first-use")
	s.must("broker", "config", "--host", "n1", "--dir", filepath.Join(dir, "n1"), "--write", "--listen", s.broker)
	key, err := jwt.ParsePrivateKey([]byte(s.read("signer-key.pem")), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.signer = key
	s.runBroker()
	filled(t, s.target)
	s.awaitMark(1)
	return s
}

func (s *separate) runBroker() {
	s.t.Helper()
	s.b = launch(s.t, s.dir, "muster", "broker", "run", "n1/nats-server.conf")
	s.b.waitFor("broker is running")
}

// careless returns JetStream with the provisioners' login.
func (s *separate) careless() jetstream.JetStream {
	s.t.Helper()
	seed := strings.TrimSpace(s.read("cluster/provisioner"))
	kp, err := nkeys.FromSeed([]byte(seed))
	if err != nil {
		s.t.Fatal(err)
	}
	public, err := kp.PublicKey()
	if err != nil {
		s.t.Fatal(err)
	}
	nc, err := nats.Connect("nats://"+s.broker, nats.Nkey(public, kp.Sign))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	return js
}

// TestLossBeneathARunningProvisioner damages the store of a separate broker, or deletes a stream, while the provisioner
// runs. It raises an alarm within five seconds, and gives a name on record to no other key meanwhile. Backups fail.
func TestLossBeneathARunningProvisioner(t *testing.T) {
	t.Parallel()
	deleted := func(anew bool) func(*separate, string) {
		return func(s *separate, stream string) {
			js := s.careless()
			found, err := js.Stream(within(s.t), stream)
			if err == nil {
				err = js.DeleteStream(within(s.t), stream)
			}
			if err == nil && anew {
				_, err = js.CreateStream(within(s.t), found.CachedInfo().Config)
			}
			if err != nil {
				s.t.Fatal(err)
			}
		}
	}
	restarted := func(with syscall.Signal, damage string) func(*separate, string) {
		return func(s *separate, stream string) {
			s.b.signal(with)
			s.b.exit()
			for _, d := range damages {
				if d.what == damage {
					d.do(s.t, blocks(s.t, s.store, stream)[0])
				}
			}
			s.runBroker()
		}
	}
	for _, tt := range []struct {
		what, stream string
		lose         func(*separate, string)
	}{
		{"deleted", "MUSTER_NODES", deleted(false)},
		{"deleted", "MUSTER_ENTRIES", deleted(false)},
		{"made anew", "MUSTER_NODES", deleted(true)},
		{"made anew", "MUSTER_CLAIMS", deleted(true)},
		{"made anew", "MUSTER_REVOCATIONS", deleted(true)},
		{"killed, cut", "MUSTER_NODES", restarted(syscall.SIGKILL, "a block cut to half")},
		{"stopped, flipped", "MUSTER_NODES", restarted(syscall.SIGTERM, "a byte flipped in the middle")},
		{"stopped, flipped", "MUSTER_CLAIMS", restarted(syscall.SIGTERM, "a byte flipped in the middle")},
		{"stopped, removed", "MUSTER_REVOCATIONS", restarted(syscall.SIGTERM, "a block removed")},
		{"killed, flipped", "MUSTER_ENTRIES", restarted(syscall.SIGKILL, "a byte flipped in the last message")},
	} {
		t.Run(tt.what+" "+tt.stream, func(t *testing.T) {
			t.Parallel()
			s := newSeparate(t)
			s.t = t
			asking, stop := context.WithCancel(t.Context())
			var thief sync.WaitGroup
			thief.Go(func() {
				for asking.Err() == nil {
					s.thief(asking, "web1.example.net")
				}
			})
			tt.lose(s, tt.stream)
			began := time.Now()
			s.p.waitFor("the store has lost data")
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("noticed after %v, limit 5 s", took)
			}
			stop()
			thief.Wait()
			if n := strings.Count(s.p.output(), `msg="node enrolled" node=web1.example.net`); n != 1 {
				t.Errorf("web1.example.net was enrolled %d times, want once", n)
			}
			if out, err := s.muster("backup", "whole.backup"); err == nil {
				t.Errorf("a backup of it: %s", out)
			}
		})
	}
}

// thief asks for a name on record with a new key.
func (s *separate) thief(ctx context.Context, identity string) {
	n, err := simnode.New(identity, s.token(nil))
	if err != nil {
		s.t.Error(err)
		return
	}
	nc, err := simnode.Dial("nats://"+s.broker, n.Token)
	if err != nil {
		return // the broker is away, or admits no connection
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second) // a request that is lost has no answer
	defer cancel()
	if r, err := simnode.Enroll(ctx, nc, n.Request()); err == nil && r.Enrolled != nil {
		s.t.Errorf("another key gets %s", identity)
	}
}
