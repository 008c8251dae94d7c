package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// addNode adds "muster node" with its verbs.
func addNode(app *kingpin.Application, all verbs) {
	c := app.Command("node", "See what machines do and why; keep them out, let them in again, or have them do something.").
		HelpLong("These verbs ask the provisioner that runs on this machine. What they change is in\nforce on every provisioner of the installation within a second.")
	addNodeList(c, all)
	addNodeShow(c, all)
	addNodeHistory(c, all)
	addNodeExplain(c, all)
	addNodeChange(c, all, "revoke", "Keep a machine out for good.",
		`Drops the machine's connections within a second, puts its certificates on the CRL,
and gives it no other, also if it has a good token. 'muster node retire' lifts it.`,
		"%s is revoked: its connections are dropped, and it stays out until it is retired")
	addNodeChange(c, all, "retire", "Free the name of a machine that is gone.",
		`Revokes what certificates the machine still has and frees its name for any key: the
next machine that comes with this name is treated as new. Use it for machines
that are gone, and for a revoked one that may come back.`,
		"%s is retired: the name is free")
	addNodeGrant(c, all)
	addNodePending(c, all)
	addNodeVerdicts(c, all)
	addNodeCommands(c, all)
}

// nodeChange is one of the verbs that need no more than a name.
type nodeChange struct {
	operator
	verb, done, identity string
}

func addNodeChange(parent *kingpin.CmdClause, all verbs, verb, help, long, done string) {
	v := &nodeChange{verb: verb, done: done}
	c := parent.Command(verb, help).HelpLong(long)
	c.Arg("node", "Its name.").Required().StringVar(&v.identity)
	v.addChange(c)
	all[c.FullCommand()] = v.run
}

func (v *nodeChange) run(ctx context.Context) error {
	id, err := wire.ParseIdentity(v.identity)
	if err != nil {
		return cli.Usage(program+" node "+v.verb, err)
	}
	if err := v.ask(ctx, http.MethodPost, "/v1/nodes/"+string(id)+"/"+v.verb, httpapi.Reason{Why: v.why}, nil); err != nil {
		return err
	}
	return v.print(map[string]string{"node": string(id), "done": v.verb}, func() error { v.say(v.done, id); return nil })
}

// nodeGrantVerb is "muster node grant".
type nodeGrantVerb struct {
	operator
	identity, key string
	ttl           string
}

const nodeGrantHelp = `Lets another key take the name over, once: for a machine that was reinstalled and
has lost its key. With --key only the key with this hash may; the provisioner's log
prints it where the machine is refused. The machine that has the name now is
out as soon as the new one has confirmed.`

func addNodeGrant(parent *kingpin.CmdClause, all verbs) {
	v := &nodeGrantVerb{}
	c := parent.Command("grant", "Let another key take a name over, once.").HelpLong(nodeGrantHelp)
	c.Arg("node", "Its name.").Required().StringVar(&v.identity)
	c.Flag("key", "Only the key with this SHA-256, 64 hex digits.").PlaceHolder("HASH").StringVar(&v.key)
	c.Flag("ttl", "How long the grant waits, as 30m or 1d; a day at most.").Default("1h").StringVar(&v.ttl)
	v.addChange(c)
	all[c.FullCommand()] = v.run
}

func (v *nodeGrantVerb) run(ctx context.Context) error {
	id, err := wire.ParseIdentity(v.identity)
	if err != nil {
		return cli.Usage(program+" node grant", err)
	}
	ttl, err := cli.ParseDuration(v.ttl)
	if err != nil {
		return cli.Usage(program+" node grant", fmt.Errorf("--ttl: %w", err))
	}
	var grant provisioner.Grant
	if err := v.ask(ctx, http.MethodPost, "/v1/nodes/"+string(id)+"/grant", httpapi.NewGrant{KeyHash: v.key, TTL: ttl, Why: v.why}, &grant); err != nil {
		return err
	}
	return v.print(&grant, func() error {
		v.say("the next machine that asks for %s with a key of its own gets it, until %s", id, instant(grant.ExpiresAt))
		return nil
	})
}
