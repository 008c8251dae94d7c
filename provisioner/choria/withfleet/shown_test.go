package choria_test

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"muster/internal/daemon"
	"muster/internal/testbed"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
	"muster/provisioner/trust"
)

// Operators see over which protocol a node enrolled, and why the other protocol's machine does not get its name.
func TestOperatorsSeeTheProtocol(t *testing.T) {
	t.Parallel()
	f := newFleet(t, nil)
	client := clientOf(f)
	list := func(protocol string) (names []string) {
		var p fleet.Page
		path := "/v1/nodes"
		if protocol != "" {
			path += "?protocol=" + protocol
		}
		if err := client.Do(f.Context(), http.MethodGet, path, nil, &p); err != nil {
			t.Fatal(err)
		}
		for i := range p.Nodes {
			names = append(names, string(p.Nodes[i].Identity)+" "+p.Nodes[i].Protocol.String())
		}
		return names
	}
	start(t, f, web1, nil).provisioned()
	other := f.Node("web2.example.net")
	f.Apply(other, f.Enroll(other))
	for protocol, want := range map[string]string{
		"":       web1 + " choria, web2.example.net muster",
		"choria": web1 + " choria",
		"muster": "web2.example.net muster",
	} {
		f.Eventually("the list of "+protocol, func() bool { return strings.Join(list(protocol), ", ") == want })
	}

	f.Refused(f.Node(web1))
	start(t, f, other.Identity, nil)
	explained(f, other.Identity, "enrolled over protocol muster, and this machine asks over choria")
	said := explained(f, web1, "enrolled over protocol choria, and this machine asks over muster")
	if strings.Contains(said, "node grant") || !strings.Contains(said, "as a new machine, over protocol choria") {
		t.Errorf("explained as:\n%s", said)
	}
	keys, err := f.Daemon().Orders().Keys.Waiting(f.Context(), web1)
	if err != nil || len(keys) != 1 {
		t.Fatalf("waiting: %v, %v", keys, err)
	}
	_, err = f.Daemon().Orders().Nodes.Grant(f.Context(), web1, operate.GrantOrder{KeyHash: keys[0].KeyHash},
		testbed.Operator())
	if !errors.Is(err, trust.ErrState) || !strings.Contains(err.Error(), "no effect") {
		t.Errorf("a grant: %v", err)
	}
	f.Check()
}

// A Choria server's log does not show the key that an operator must compare.
func TestApprovalSaysHowToCompareTheKey(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.Choria.Brokers = []string{"broker.example.net:4222"}
	}})
	start(t, f, web1, nil)
	if said := explained(f, web1, "muster node approve"); strings.Contains(said, "log shows") {
		t.Errorf("explained as:\n%s", said)
	}
}

func clientOf(f *testbed.Fleet) *httpapi.Client {
	return httpapi.NewClient(filepath.Join(f.Dir, "data", httpapi.SocketName))
}

// explained waits until a node is explained with a text, and returns the explanation in one piece.
func explained(f *testbed.Fleet, name, want string) (said string) {
	f.Eventually(name+" is explained", func() bool {
		var e fleet.Explanation
		if clientOf(f).Do(f.Context(), http.MethodGet, "/v1/nodes/"+name+"/explain", nil, &e) != nil {
			return false // nothing is known yet
		}
		said = ""
		for _, finding := range e.Findings {
			said += finding.Text + "\n"
			for _, a := range finding.Do {
				said += a.Command() + " " + a.Text + "\n"
			}
		}
		return strings.Contains(said, want)
	})
	return said
}
