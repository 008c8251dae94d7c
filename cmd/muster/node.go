package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// addNode adds "muster node" with its verbs.
func addNode(app *kingpin.Application, all verbs) {
	c := app.Command("node", "See what machines do and why; keep them out, let them in again, or have them do something.").
		HelpLong("These verbs ask the provisioner that runs on this machine, or with --url one elsewhere.\nWhat they change is in force on every provisioner of the installation within a second.")
	addNodeList(c, all)
	addNodeShow(c, all)
	addNodeHistory(c, all)
	addNodeExplain(c, all)
	addNodeChange(c, all, "revoke", "Keep a machine out for good.",
		`Drops the machine's connections within a second, puts its certificates on the CRL,
and gives it no other, also if it has a good token. 'muster node retire' lifts it.

  muster node revoke web1.example.net --why 'stolen laptop'
  muster node revoke --from stolen.txt --why 'theft at ams1'`,
		"is revoked: its connections are dropped, and it stays out until it is retired",
		provisioner.StateEnrolled, provisioner.StateProvisioned)
	addNodeChange(c, all, "retire", "Free the name of a machine that is gone.",
		`Revokes what certificates the machine still has and frees its name for any key: the
next machine that comes with this name is treated as new. Use it for machines
that are gone, and for a revoked one that may come back: filters choose revoked
machines with --state revoked only, since whoever has stolen one gets in again.

  muster node retire web1.example.net --why scrapped
  muster node retire --unseen 30d  # what was scaled down a month ago`,
		"is retired: the name is free",
		provisioner.StateEnrolled, provisioner.StateProvisioned)
	addNodeGrant(c, all)
	addNodePending(c, all)
	addNodeVerdicts(c, all)
	addNodeCommands(c, all)
}

// nodeChange is one of the verbs that need no more than a name.
type nodeChange struct {
	nodeManyVerb
	done   string
	states []provisioner.State // of the nodes that it is for
}

func addNodeChange(parent *kingpin.CmdClause, all verbs, verb, help, long, done string, states ...provisioner.State) {
	v := &nodeChange{done: done, states: states}
	v.unheard = time.Hour // twice what machines are silent for, if their alive_interval is not longer
	v.verb = verb
	c := parent.Command(verb, help).HelpLong(long + nodeManyHelp)
	v.addMany(c, all)
	all[c.FullCommand()] = v.run
}

func (v *nodeChange) run(ctx context.Context) error {
	client, err := v.client(ctx)
	if err != nil {
		return err
	}
	choose := func(ctx context.Context) (*choice, error) { return v.choose(ctx, &v.operator, v.states) }
	result, err := v.over(ctx, choose, func(ctx context.Context, p *campaign, t target) error {
		change := httpapi.Change{Why: v.why, SeenBefore: p.SeenBefore, Seen: p.Seen[t.Node]}
		if v.verb == "revoke" { // a renewal since does not save a node from it
			change.Revision = 0
		}
		return client.Do(ctx, http.MethodPost, "/v1/nodes/"+string(t.Node)+"/"+v.verb, change, nil)
	})
	return v.tell(result, err, v.done)
}

// nodeGrantVerb is "muster node grant".
type nodeGrantVerb struct {
	nodeManyVerb
	key string
	ttl string
}

const nodeGrantHelp = `Lets another key take the name over, once: for a machine that was reinstalled and
has lost its key. With --key only the key with this hash may; 'muster node
pending --details' prints it while the machine waits. The machine that has the name now is
out as soon as the new one has confirmed.

  muster node grant web1.example.net --why 'reinstalled, ticket 17'
  muster node grant web1.example.net --ttl 15m \
    --key 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`

func addNodeGrant(parent *kingpin.CmdClause, all verbs) {
	v := &nodeGrantVerb{}
	v.verb = "grant"
	c := parent.Command(v.verb, "Let another key take a name over, once.").HelpLong(nodeGrantHelp + nodeManyHelp)
	c.Flag("key", "Only the key with this SHA-256, 64 hex digits; of one machine.").PlaceHolder("HASH").StringVar(&v.key)
	c.Flag("ttl", "How long the grant waits, as 30m or 1d; 1d at most.").Default("1h").StringVar(&v.ttl)
	v.addMany(c, all)
	all.Check(c, func() error { _, err := v.grant(); return err })
	all[c.FullCommand()] = v.run
}

// grant returns how long the grants wait, or all that is wrong with the flags.
func (v *nodeGrantVerb) grant() (ttl time.Duration, err error) {
	ttl, err = cli.DurationOf("ttl", v.ttl, time.Minute, provisioner.MaxGrantTTL)
	if names := slices.Compact(slices.Sorted(slices.Values(v.names))); v.key != "" && len(names) != 1 {
		err = errors.Join(err, errors.New("--key is one machine's: name that"))
	}
	if v.key != "" {
		if mistake := provisioner.CheckKeyHash(v.key); mistake != nil {
			err = errors.Join(err, fmt.Errorf("--key: %w", mistake))
		}
	}
	return ttl, err
}

func (v *nodeGrantVerb) run(ctx context.Context) error {
	ttl, err := v.grant()
	if err != nil {
		return err
	}
	client, err := v.client(ctx)
	if err != nil {
		return err
	}
	choose := func(ctx context.Context) (*choice, error) { return v.choose(ctx, &v.operator, commanded) }
	var until atomic.Pointer[time.Time]
	result, err := v.over(ctx, choose, func(ctx context.Context, p *campaign, t target) error {
		var grant provisioner.Grant
		err := client.Do(ctx, http.MethodPost, "/v1/nodes/"+string(t.Node)+"/grant", httpapi.NewGrant{ID: p.ID, KeyHash: httpapi.Limit(v.key), TTL: ttl, Why: v.why}, &grant)
		if err == nil {
			until.Store(&grant.ExpiresAt)
		}
		return err
	})
	done := "has no grant"
	if end := until.Load(); end != nil {
		whom := "next machine that asks for the name with a key of its own"
		if v.key != "" {
			whom = "machine with the key " + v.key[:16]
		}
		done = "may be taken over by the " + whom + ", until " + instant(*end)
	}
	return v.tell(result, err, done)
}
