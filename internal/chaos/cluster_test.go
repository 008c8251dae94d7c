package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"muster/internal/testproc"
)

// servers is how many brokers a cluster has.
const servers = 3

// A member is a process of a cluster: a broker, or the second provisioner.
type member struct {
	t      *testing.T
	name   string
	dir    string // working directory
	path   string // of the program; empty: muster
	args   []string
	prefix []string
	p      *process
}

func (m *member) start() {
	m.t.Helper()
	path := m.path
	if path == "" {
		path = program(m.t, "muster")
	}
	m.p = supervise(m.t, m.dir, m.name, nil, slices.Concat(m.prefix, []string{path}, m.args)...)
}

// A cluster is three broker processes with their own stores, and two provisioners that share the work; d.p is the
// first.
type cluster struct {
	brokers []*member
	second  *member
	dial    []nats.Option // of the checker
}

// newCluster sets up a cluster of brokers with these addresses, without starting it.
func newCluster(t *testing.T, dir string, hosts [servers]string) *deployment {
	t.Helper()
	d := &deployment{t: t, dir: dir, clock: newClock(t, filepath.Join(dir, "provisioner.clock")), cluster: &cluster{}}
	var urls, routes []string
	init := []string{"provisioner", "init", "prov", "--host", "one.chaos.test", "--broker-name", "localhost",
		"--trust-domain", "chaos.test", "--trust-first-use"}
	for _, host := range hosts {
		d.addresses = append(d.addresses, net.JoinHostPort(host, testproc.FreePort(t)))
		urls = append(urls, "tls://"+d.addresses[len(d.addresses)-1])
		routes = append(routes, net.JoinHostPort(host, testproc.FreePort(t)))
		init = append(init, "--broker-address", host)
	}
	d.muster(append(init, "--broker-urls", strings.Join(urls, ","))...)
	d.edit("prov/provisioner.yaml", "# per_source: 20000", "per_source: 0")
	for i, address := range d.addresses {
		name := fmt.Sprintf("n%d", i+1)
		config := []string{"broker", "config", "--config", "prov/provisioner.yaml", "--host", name, "--listen",
			address, "--cluster-listen", routes[i],
			"--dir", name, "--max-store-bytes", fmt.Sprint(8 << 30), "--write"}
		for _, route := range routes {
			config = append(config, "--route", route)
		}
		d.muster(config...)
		d.cluster.brokers = append(d.cluster.brokers, &member{
			t:    t,
			name: name,
			dir:  dir,
			args: []string{"broker", "run", name + "/nats-server.conf"},
		})
	}
	// The other host has the same keys, and its own name and journal.
	if err := os.CopyFS(filepath.Join(dir, "prov2"), os.DirFS(filepath.Join(dir, "prov"))); err != nil {
		t.Fatal(err)
	}
	d.edit("prov2/provisioner.yaml", "name: one.chaos.test", "name: two.chaos.test")
	if err := filepath.WalkDir(filepath.Join(dir, "prov2"), private); err != nil {
		t.Fatal(err)
	}
	d.cluster.second = &member{
		t:    t,
		name: "second",
		dir:  dir,
		args: []string{"provisioner", "run", "--config", "prov2/provisioner.yaml"},
	}
	return d
}

// stock makes each broker a plain nats-server, with the configuration of `muster broker run`.
func (c *cluster) stock() {
	for _, b := range c.brokers {
		b.path, b.args = testproc.NATSServer(b.t), []string{"-c", b.args[len(b.args)-1]}
	}
}

// private removes the permissions of other users, since copies have lost the original modes.
func private(path string, e os.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if e.IsDir() {
		return os.Chmod(path, 0o700)
	}
	return os.Chmod(path, 0o600)
}

// serveAll starts the brokers and the provisioners of a cluster and waits until
// they serve.
func (d *deployment) serveAll() {
	d.t.Helper()
	for _, b := range d.cluster.brokers {
		b.start()
	}
	d.serve()
	d.cluster.second.start()
	d.cluster.second.p.waitFor("provisioner is serving")
}

// login returns the options with which provisioners connect to the brokers.
func (d *deployment) login() []nats.Option {
	d.t.Helper()
	seed, err := os.ReadFile(filepath.Join(d.dir, "prov/cluster/provisioner"))
	if err != nil {
		d.t.Fatal(err)
	}
	pair, err := nkeys.FromSeed([]byte(strings.TrimSpace(string(seed))))
	if err != nil {
		d.t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		d.t.Fatal(err)
	}
	return append([]nats.Option{nats.Nkey(public, pair.Sign), nats.Timeout(10 * time.Second), nats.MaxReconnects(-1)},
		d.cluster.dial...)
}

// streamInfo is what the checker wants to know of a stream.
type streamInfo struct {
	Cluster struct {
		Leader   string `json:"leader"`
		Replicas []struct {
			Current bool `json:"current"`
			Offline bool `json:"offline"`
		} `json:"replicas"`
	} `json:"cluster"`
}

// waitStream waits until a broker's view of the stream of records is as wanted.
func (d *deployment) waitStream(what string, wanted func(*streamInfo) bool) {
	d.t.Helper()
	var nc *nats.Conn
	defer func() { nc.Close() }()
	eventually(d.t, what, func() bool {
		var err error
		if nc == nil {
			if nc, err = nats.Connect(d.url(), d.login()...); err != nil {
				return false
			}
		}
		m, err := nc.Request("$JS.API.STREAM.INFO.MUSTER_NODES", nil, time.Second)
		var info streamInfo
		return err == nil && json.Unmarshal(m.Data, &info) == nil && wanted(&info)
	})
}

// leader returns the broker that leads the stream of records.
func (d *deployment) leader() *member {
	d.t.Helper()
	name := ""
	d.waitStream("the stream of records has a leader", func(i *streamInfo) bool {
		name = i.Cluster.Leader
		return name != ""
	})
	for _, b := range d.cluster.brokers {
		if b.name == name {
			return b
		}
	}
	d.t.Fatalf("the leader is %q", name)
	return nil
}

// waitWhole waits until every broker has every record.
func (d *deployment) waitWhole() {
	d.t.Helper()
	d.waitStream("all brokers have all records", func(i *streamInfo) bool {
		whole := len(i.Cluster.Replicas) == servers-1
		for _, r := range i.Cluster.Replicas {
			whole = whole && r.Current && !r.Offline
		}
		return whole && i.Cluster.Leader != ""
	})
}

// followers returns the brokers that do not lead the stream of records.
func (d *deployment) followers() []*member {
	d.t.Helper()
	leader := d.leader()
	return slices.DeleteFunc(slices.Clone(d.cluster.brokers), func(b *member) bool { return b == leader })
}

// read kills all brokers at once, so that only their disks remain, restarts them, and reads the store.
func (c *cluster) read(d *deployment) map[string][]stored {
	d.t.Helper()
	for _, b := range c.brokers {
		b.p.kill()
	}
	for _, b := range c.brokers {
		b.start()
	}
	var all map[string][]stored
	var err error
	defer func() {
		if err != nil {
			d.t.Logf("the store is not read: %v", err)
		}
	}()
	eventually(d.t, "the store is read", func() bool {
		var nc *nats.Conn
		if nc, err = nats.Connect(d.url(), d.login()...); err != nil {
			return false
		}
		defer nc.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		all, err = readStreams(ctx, nc)
		return err == nil
	})
	return all
}
