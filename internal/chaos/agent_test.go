package chaos_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

// pendingFile exists beside the certificate until the confirmation is on record.
const pendingFile = "..data/applied.json"

// An agent is muster-server in its own process and directory.
type agent struct {
	t        *testing.T
	identity string
	dir      string
	token    string // path
	clock    *clock
	p        *process // nil or ended: down
}

// newAgents makes n agents with this token in dir/agents, without starting them.
func newAgents(t *testing.T, dir, token string, n int) []*agent {
	t.Helper()
	var all []*agent
	for i := range n {
		identity := fmt.Sprintf("agent%02d.chaos.test", i)
		home := filepath.Join(dir, "agents", identity)
		if err := os.MkdirAll(home, 0o700); err != nil {
			t.Fatal(err)
		}
		a := &agent{
			t:        t,
			identity: identity,
			dir:      home,
			token:    filepath.Join(home, "provisioning.jwt"),
			clock:    newClock(t, filepath.Join(home, "clock")),
		}
		if err := os.WriteFile(a.token, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// start starts the agent, which continues from its disk.
func (a *agent) start() {
	a.t.Helper()
	a.p = start(a.t, a.dir, "agent", []string{a.clock.env()}, program(a.t, "muster-server"), "run",
		"--token-file", a.token, "--ssl-dir", a.ssl(), "--config", filepath.Join(a.dir, "server.conf"), "--identity",
		a.identity)
}

// nudge changes the token by a line end, so that a waiting agent tries again.
func (a *agent) nudge() {
	a.t.Helper()
	b, err := os.ReadFile(a.token)
	if err == nil {
		err = os.WriteFile(a.token, append(b, '\n'), 0o600)
	}
	if err != nil {
		a.t.Fatal(err)
	}
}

func (a *agent) ssl() string { return filepath.Join(a.dir, "ssl") }

// provisioned reports whether the agent's disk says that its confirmation is on
// record.
func (a *agent) provisioned() bool {
	_, err := os.Stat(filepath.Join(a.ssl(), certFile))
	_, pending := os.Stat(filepath.Join(a.ssl(), pendingFile))
	return err == nil && errors.Is(pending, fs.ErrNotExist)
}

// addAgents starts n real agents, which connect to address.
func (r *run) addAgents(n int, address string) {
	r.Helper()
	r.agents = newAgents(r.T, r.dir, r.d.token("agents", address), n)
	for _, a := range r.agents {
		a.start()
	}
}

// waitAgents waits until all agents are provisioned.
func (r *run) waitAgents() {
	r.Helper()
	for _, a := range r.agents {
		eventually(r.T, a.identity+" is provisioned", func() bool {
			if a.p.ended() {
				r.Fatalf("%s ended: %v\n%s", a.identity, a.p.err, a.p.output())
			}
			return a.provisioned()
		})
	}
}

// checkAgents stops the agents and compares their disks with the store. It
// returns how many are provisioned.
func (r *run) checkAgents(c *checker) int {
	r.Helper()
	in := 0
	for _, a := range r.agents {
		if c.disk(a.identity, a.ssl()) {
			in++
		} else {
			r.Errorf("%s is not provisioned", a.identity)
		}
		if n := len(c.serials[a.identity]); n > 1 && !r.renewed {
			r.Errorf("%s: has had certificates %v, want one", a.identity, c.serials[a.identity])
		}
	}
	return in
}

// killAgents kills real agents at random between any two steps, again and again.
func killAgents(r *run) {
	r.d = newEmbedded(r.T, r.dir, "127.0.0.1")
	r.d.serve()
	token := r.d.token("agents", r.d.address(), "--seal", "prov/seal.pub")
	r.agents = newAgents(r.T, r.dir, token, size(6, 40))
	// The first one shows how long an enrollment takes.
	first := r.agents[0]
	begun := time.Now()
	first.start()
	eventually(r.T, first.identity+" is provisioned", first.provisioned)
	takes := time.Since(begun)
	kills := 0
	for range size(6, 25) {
		order := slices.Clone(r.agents[1:])
		r.rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, a := range order {
			if !a.provisioned() {
				a.start()
				hold(r.upTo(takes / 2)) // later ones mostly hit a finished node
				a.p.signal(syscall.SIGKILL)
				<-a.p.done
				kills++
			}
		}
	}
	for _, a := range r.agents[1:] {
		a.start()
	}
	r.settle()
	r.result.seen += fmt.Sprintf("; %d kills", kills)
}
