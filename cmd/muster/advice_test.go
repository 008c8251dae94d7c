package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

// A trial is a node in some state: its owner, the machine that an operator wants in, and a thief with a token. Each may
// be nil.
type trial struct {
	f                   *testbed.Fleet
	id                  string
	owner, right, thief *simnode.Node
	keptOut             bool // a machine with a former certificate was not admitted
}

func (x *trial) key(t *testing.T, n *simnode.Node) string {
	t.Helper()
	hash, err := ca.KeyHash(n.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func (x *trial) provisioned() {
	x.owner = x.f.Node(x.id)
	x.f.Apply(x.owner, x.f.Enroll(x.owner))
}

func (x *trial) asks(n **simnode.Node) {
	*n = x.f.Node(x.id)
	x.f.Refused(*n)
}

// adviceStates bring a node into each state. The policy admits names that begin with web.
var adviceStates = map[string]func(*trial){
	"new-waits":         func(x *trial) { x.asks(&x.right) },
	"new-two-wait":      func(x *trial) { x.asks(&x.right); x.asks(&x.thief) },
	"web-provisioned":   func(x *trial) { x.provisioned() },
	"web-enrolled":      func(x *trial) { x.owner = x.f.Node(x.id); x.f.Enroll(x.owner) },
	"web-taken":         func(x *trial) { x.provisioned(); x.asks(&x.right); x.asks(&x.thief) },
	"web-thief":         func(x *trial) { x.provisioned(); x.asks(&x.thief) },
	"web-revoked":       func(x *trial) { x.provisioned(); x.f.Revoke(x.id) },
	"web-revoked-asked": func(x *trial) { x.provisioned(); x.f.Revoke(x.id); x.asks(&x.thief) },
	"web-retired":       func(x *trial) { x.provisioned(); x.f.Retire(x.id) },
	"web-replaced": func(x *trial) {
		former := x.f.Node(x.id)
		e := x.f.Enroll(former)
		x.f.Apply(former, e)
		x.f.Retire(x.id)
		x.provisioned()
		if nc, err := former.DialFleet(x.f.URL(), e); err == nil {
			nc.Close()
		}
		x.keptOut = true
	},
	"new-rejected": func(x *trial) {
		x.asks(&x.right)
		_, err := x.f.Daemon().Orders().Keys.Reject(x.f.Context(), operate.Named(wire.Identity(x.id), ""),
			testbed.Operator())
		if err != nil {
			panic(err)
		}
		x.f.Refused(x.right)
	},
	"web-cloned": func(x *trial) {
		x.provisioned()
		now := x.f.Clock.Now().UTC()
		x.f.PutRecord(x.id, func(r *provisioner.Record) {
			r.Cloned = &provisioner.Cloned{At: now, Machines: [2]provisioner.Machine{
				{Boot: "one", Address: "192.0.2.1", First: now, Last: now},
				{Boot: "two", Address: "192.0.2.2", First: now, Last: now},
			}}
		})
		x.asks(&x.right)
		x.asks(&x.thief)
	},
}

// adviceSays are texts that the explanation of a state must have; adviceHides are those that it must not.
var adviceSays, adviceHides = map[string]string{
	"new-waits":    "is not enrolled, and 1 key waits for the name",
	"web-taken":    "is provisioned, and 2 keys wait for the name",
	"web-replaced": "is revoked, not the name: stop its agent",
	"web-cloned":   "boot instance one at 192.0.2.1, seen from 20",
}, map[string]string{
	"web-taken":         `node retire web\S+`,
	"web-thief":         `node retire web\S+`,
	"web-revoked-asked": `node retire web\S+`,
	"web-cloned":        `node retire web\S+`,
	"web-replaced":      `node retire web\S+`,
}

// TestAdviceHolds runs each command that an explanation advises in each state, on a node of its own. It must succeed,
// have the promised result, and admit no key but the one that it names.
func TestAdviceHolds(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: testbed.Quotas(1000, 1000)})
	f.Allow("web*.example.net")
	config := filepath.Join(f.Dir, "provisioner.yaml")
	client := httpapi.NewClient(filepath.Join(f.Dir, "data", httpapi.SocketName))
	muster := func(args ...string) (string, int) {
		cmd := command(t, args...)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	bring := func(state string, number int) *trial {
		x := &trial{f: f, id: fmt.Sprintf("%s%d.example.net", state, number)}
		adviceStates[state](x)
		return x
	}
	commands := func(x *trial) (do [][]string) {
		var e fleet.Explanation
		f.Eventually(x.id+" is explained", func() bool {
			return client.Do(f.Context(), http.MethodGet, "/v1/nodes/"+x.id+"/explain", nil, &e) == nil &&
				(x.thief == nil && !x.keptOut || e.Waiting > 0 || len(e.Refusals) > 0)
		})
		for _, finding := range e.Findings {
			for _, a := range finding.Do {
				if a.Verb != "" {
					do = append(do, strings.Fields(a.Command())[1:])
				}
				if strings.Contains(a.Text, "node explain") {
					t.Errorf("%s: the explanation advises to explain: %s", x.id, a.Text)
				}
			}
		}
		return do
	}
	for state := range adviceStates {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			x := bring(state, 0)
			n := len(commands(x))
			said, exit := muster("node", "explain", x.id, "--config", config)
			if exit != 0 || !strings.Contains(said, adviceSays[state]) || strings.Count(said, "  - muster ") < n/2 {
				t.Errorf("exit %d: %s", exit, said)
			}
			if hides := adviceHides[state]; hides != "" && regexp.MustCompile(`- muster `+hides).MatchString(said) {
				t.Errorf("it gives the name away:\n%s", said)
			}
			for i := range n {
				x := bring(state, i+1)
				do := commands(x)
				if len(do) != n {
					t.Fatalf("%d commands, and then %d: %v", n, len(do), do)
				}
				out, exit := muster(append(do[i], "--config", config)...)
				if exit != 0 {
					t.Errorf("%v: exit %d: %s", do[i], exit, out)
					continue
				}
				x.check(t, do[i], out)
			}
		})
	}
}

// check fails the test unless a command had its result.
func (x *trial) check(t *testing.T, do []string, out string) {
	t.Helper()
	line := strings.Join(do, " ")
	enrolls := func(n *simnode.Node) bool { return x.f.Ask(n).Enrolled != nil }
	names := func(n *simnode.Node) bool { return n != nil && strings.HasSuffix(line, " --fingerprint "+x.key(t, n)) }
	if x.thief != nil && enrolls(x.thief) && !names(x.thief) {
		t.Errorf("%s: a key that it does not name is admitted", line)
	}
	for _, n := range []*simnode.Node{x.right, x.thief} {
		if !names(n) {
			continue
		}
		if admits := do[1] == "approve" || do[1] == "grant"; admits != enrolls(n) {
			t.Errorf("%s: the key it names is admitted: %t", line, !admits)
		}
	}
	switch do[1] {
	case "revoke":
		if enrolls(x.owner) {
			t.Errorf("%s: it enrolls", line)
		}
	case "retire":
		if x.f.Record(x.id).State != provisioner.StateRetired {
			t.Errorf("%s: it is not retired", line)
		}
	case "pending":
		if strings.Contains(out, x.id) != (x.right != nil || x.thief != nil) {
			t.Errorf("%s: %s", line, out)
		}
	}
}

// TestRemediesAreSafe reads the advice about each code, as the agent's log, the console, codes.md and alarms have it:
// its commands exist, and none gives a name to a key that is not named.
func TestRemediesAreSafe(t *testing.T) {
	t.Parallel()
	command := regexp.MustCompile("`(muster [a-z -]+)")
	known := verbs{}
	addVerbs(kingpin.New(program, ""), known)
	for _, code := range events.Codes() {
		texts := []string{wire.MeaningOf(code).Remedy, events.AlarmRemedy(code)}
		for _, a := range fleet.Remedies(code, "web1.example.net", "") {
			texts = append(texts, "`"+a.Command()+"`: "+a.Text)
			if strings.Contains(a.Text, "node explain") {
				t.Errorf("%s: an explanation advises to explain: %s", code, a.Text)
			}
		}
		for _, text := range texts {
			for _, m := range command.FindAllStringSubmatch(text, -1) {
				words, _, _ := strings.Cut(m[1], " --")
				fields := append(strings.Fields(words)[1:], "", "")
				if known[fields[0]] == nil && known[fields[0]+" "+fields[1]] == nil {
					t.Errorf("%s: %q: no such command", code, m[1])
				}
			}
			for verb, need := range map[string]string{
				"node grant": "--fingerprint", "node approve": "--fingerprint", "node retire": "right one", "allow add": "never",
			} {
				if strings.Contains(text, "muster "+verb) && !strings.Contains(text, need) {
					t.Errorf("%s: %q gives a name away: want %q", code, text, need)
				}
			}
		}
	}
}

// TestGrantAsksForTheKey grants a name while a thief's key waits, as an operator does after a reinstallation.
func TestGrantAsksForTheKey(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	x := &trial{f: f, id: "web1.example.net"}
	x.provisioned()
	x.asks(&x.right)
	x.asks(&x.thief)
	args := []string{"node", "grant", x.id, "--config", filepath.Join(f.Dir, "provisioner.yaml")}
	cmd := command(t, args...)
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 1 ||
		!strings.Contains(string(out), "key "+x.key(t, x.thief)[:16]+" from 127.0.0.1 asked from 20") {
		t.Errorf("without a terminal: exit %d: %s", cmd.ProcessState.ExitCode(), out)
	}
	allow := command(t, "allow", "add", x.id, "--config", filepath.Join(f.Dir, "provisioner.yaml"))
	if out, _ := allow.CombinedOutput(); allow.ProcessState.ExitCode() != 1 ||
		!strings.Contains(string(out), "key "+x.key(t, x.thief)[:16]+" from 127.0.0.1 asked from 20") {
		t.Errorf("an entry of the allow-list: exit %d: %s", allow.ProcessState.ExitCode(), out)
	}
	for answer, exit := range map[string]int{"\n": 1, "zz\n": 1, x.key(t, x.right)[:8] + "\n": 0} {
		cmd := command(t, args...)
		person, stream := openTerminal(t)
		cmd.Stdin = stream
		asking := startCommand(t, cmd)
		asking.waitFor(`Which key may take web1\.example\.net\?`)
		if _, err := io.WriteString(person, answer); err != nil {
			t.Fatal(err)
		}
		<-asking.done
		if cmd.ProcessState.ExitCode() != exit {
			t.Errorf("%q: exit %d: %s", answer, cmd.ProcessState.ExitCode(), asking.output())
		}
	}
	if code := f.Refused(x.thief); code != wire.CodeIdentityTaken {
		t.Errorf("the thief gets %s", code)
	}
	f.Apply(x.right, f.Enroll(x.right))
	f.Check()
}
