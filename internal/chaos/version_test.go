package chaos_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"muster/internal/simnode"
	"muster/internal/wire"
)

// oldNodes brings agents of this protocol to a provisioner of the next one, which
// refuses them and says what it speaks, until they are updated.
func oldNodes(r *run) {
	r.versions(next, present)
	for _, a := range r.agents {
		a.p.stop()
		a.v = next
		a.start()
	}
	r.recovers()
	r.settle()
}

// newNodes brings agents of the next protocol to a provisioner of this one, which
// refuses them and says what it speaks, until it is updated.
func newNodes(r *run) {
	r.versions(present, next)
	r.d.p.stop()
	r.d.v = next
	r.d.serve()
	r.recovers()
	for _, a := range r.agents {
		a.nudge() // it was told to come back in minutes
	}
	r.settle()
}

// versions starts a provisioner and agents of different versions, and waits until
// all agents are refused.
func (r *run) versions(provisioner, agents version) {
	r.Helper()
	r.d = newEmbedded(r.T, r.dir, "127.0.0.1")
	r.d.v = provisioner
	r.d.serve()
	r.refusesVersion(provisioner, agents)
	r.addAgents(size(2, 10), r.d.address(), agents)
	for _, a := range r.agents {
		a.p.waitFor("unsupported")
		if a.provisioned() {
			r.Errorf("%s speaks %d and is provisioned by a provisioner that speaks %d", a.identity, agents, provisioner)
		}
	}
}

// refusesVersion sends a message of a version and wants a refusal that names the
// one that the provisioner speaks.
func (r *run) refusesVersion(speaks, sent version) {
	r.Helper()
	token := r.d.token("probe", r.d.address())
	nc, err := simnode.Dial(r.d.url(), token)
	if err != nil {
		r.Fatal(err)
	}
	defer nc.Close()
	n, err := simnode.New("probe.chaos.test", token)
	if err != nil {
		r.Fatal(err)
	}
	b, err := wire.Encode(n.Request())
	if err != nil {
		r.Fatal(err)
	}
	b = bytes.Replace(b, []byte(`{"v":1,`), append(json.RawMessage(`{"v":`), byte('0'+sent), ','), 1)
	m, err := nc.RequestMsg(&nats.Msg{Subject: wire.SubjectEnroll, Data: b}, 30*time.Second)
	if err != nil {
		r.Fatal(err)
	}
	var reply struct {
		Body struct {
			Refusal struct {
				Code     string `json:"code"`
				Versions []int  `json:"versions"`
			} `json:"refusal"`
		} `json:"body"`
	}
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		r.Fatal(err)
	}
	if got := reply.Body.Refusal; got.Code != "unsupported_version" || !slices.Equal(got.Versions, []int{int(speaks)}) {
		r.Errorf("version %d is answered with %s", sent, m.Data)
	}
}
