package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// nodeVerdictVerb is "muster node approve", "reject" and "forget".
type nodeVerdictVerb struct {
	operator
	waitingFilter
	verb, done         string
	identity, key, ttl string
	all, yes           bool
}

const (
	nodeApproveHelp = `Lets the machine in that waits under this name: with its next try, a few seconds
later, once, and with the key that waits. Another machine with that name is not
approved. With --all, or with any of the flags that say who is meant, all who wait for an
approval and are meant: it shows whom, and asks unless --yes. Who was rejected meanwhile
stays so. Where an approval would let nobody in, since the name is revoked or another
key's, it is refused.

  muster node approve web1.example.net --why 'rack 4, ticket 17'
  muster node approve --match 'web*.example.net' --from 192.0.2.0/24 --fact rack=r4`
	nodeRejectHelp = `Keeps the machine that waits under this name out, whatever policy, allow-list
and tokens say, until 'muster node approve' or 'muster node forget' names its key.
Another machine with that name may still come in.

  muster node reject web1.example.net --why 'not ours'
  muster node reject --from 192.0.2.0/24 --why 'the guest network'`
	nodeForgetHelp = `Takes a machine off the list of those that wait, and with it what was said of its
key: an approval that it has not used, or a rejection. If it asks again it waits
again. Where nobody waits under the name, the key of it that was rejected is meant.

  muster node forget web1.example.net
  muster node forget web1.example.net --key 9f86d081`
)

func addNodeVerdicts(parent *kingpin.CmdClause, all verbs) {
	addNodeVerdict(parent, all, "approve", "Let a machine in that waits.", nodeApproveHelp, "approved")
	addNodeVerdict(parent, all, "reject", "Keep a machine out that waits.", nodeRejectHelp, "rejected")
	addNodeVerdict(parent, all, "forget", "Take a machine off the list of those that wait.", nodeForgetHelp, "forgotten")
}

func addNodeVerdict(parent *kingpin.CmdClause, all verbs, verb, help, long, done string) {
	v := &nodeVerdictVerb{verb: verb, done: done}
	c := parent.Command(verb, help).HelpLong(long)
	c.Arg("node", "Its name.").StringVar(&v.identity)
	c.Flag("key", "The SHA-256 of its key, or the first 8 hex digits or more; needed where several machines wait under one name.").PlaceHolder("HASH").StringVar(&v.key)
	if verb == "approve" {
		c.Flag("ttl", "How long the approval waits, as 30m or 1d; 7d at most.").Default("24h").StringVar(&v.ttl)
	}
	c.Flag("all", "All who wait and are meant by the flags below, or everybody.").BoolVar(&v.all)
	v.waitingFilter.add(c)
	c.Flag("yes", "Do not ask.").BoolVar(&v.yes)
	v.addChange(c, all)
	all.Check(c, func() error { _, mistakes := v.check(); return errors.Join(mistakes...) })
	all[c.FullCommand()] = v.run
}

func (v *nodeVerdictVerb) run(ctx context.Context) error {
	ttl, mistakes := v.check()
	if err := errors.Join(mistakes...); err != nil {
		return err
	}
	if v.many() {
		return v.runAll(ctx, ttl)
	}
	answer, err := v.say1(ctx, wire.Identity(v.identity), httpapi.NewVerdict{Key: httpapi.Limit(v.key), TTL: ttl, Why: v.why})
	if err != nil {
		return err
	}
	return v.printDone(answer, func() error {
		next := ""
		if v.verb == "approve" {
			next = ", and gets in with its next try, until " + instant(answer.ExpiresAt)
		}
		v.say("%s with key %s is %s%s", answer.Identity, short(answer.KeyHash), v.done, next)
		return nil
	})
}

// many reports whether the verdict is about all that a filter selects.
func (v *nodeVerdictVerb) many() bool { return v.all || !v.IsZero() }

// check returns how long an approval is to live, and all that is wrong with the
// command line.
func (v *nodeVerdictVerb) check() (ttl time.Duration, mistakes []error) {
	if v.verb == "approve" {
		var err error
		if ttl, err = cli.DurationOf("ttl", v.ttl, time.Minute, provisioner.MaxApprovalTTL); err != nil {
			mistakes = append(mistakes, err)
		}
	}
	mistakes = append(mistakes, v.waitingFilter.check()...)
	switch {
	case v.many() && (v.identity != "" || v.key != ""):
		mistakes = append(mistakes, errors.New("a name or --key is about one machine, --all and the flags that say who is meant are about many: give one or the other"))
	case v.many():
	case v.identity == "":
		mistakes = append(mistakes, errors.New("no name: say who, or --all, or who is meant by --match, --prefix, --site, --token, --from or --fact"))
	default:
		if _, err := wire.ParseIdentity(v.identity); err != nil {
			mistakes = append(mistakes, err)
		}
		if err := provisioner.CheckKeyPrefix(v.key); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--key: %w", err))
		}
	}
	return ttl, mistakes
}

// say1 gives the verdict about one key.
func (v *nodeVerdictVerb) say1(ctx context.Context, id wire.Identity, verdict httpapi.NewVerdict) (*provisioner.Answer, error) {
	var answer provisioner.Answer
	return &answer, v.ask(ctx, http.MethodPost, "/v1/nodes/"+string(id)+"/"+v.verb, verdict, &answer)
}

// runAll gives the verdict about all that are meant, by the keys that were
// shown: a machine that comes meanwhile is not among them, nor is a rejection of
// meanwhile lifted. It goes on where a machine is what is in the way, and ends where
// each of the others would meet the same: nobody answers, say. It exits with 1 then. To
// run it again is harmless: who is in or rejected no longer waits.
func (v *nodeVerdictVerb) runAll(ctx context.Context, ttl time.Duration) error {
	pending, err := v.list(ctx, &v.operator)
	if err != nil {
		return err
	}
	var meant []*provisioner.Waiter
	for _, w := range pending.Waiting {
		if v.verb != "approve" || w.Code == wire.CodeApprovalPending {
			meant = append(meant, w)
		}
	}
	if len(meant) == 0 {
		return v.print([]*provisioner.Answer{}, func() error { v.say("nobody waits who is meant"); return nil })
	}
	if err := v.confirm(ctx, meant); err != nil {
		return err
	}
	done := make([]*provisioner.Answer, 0, len(meant))
	var errs []error
	failing := 0
	bar := cli.NewProgress(os.Stderr, v.verb, len(meant))
	for i, w := range meant {
		// A rejection lifts nothing, and is understood by provisioners of any version.
		answer, err := v.say1(ctx, w.Identity, httpapi.NewVerdict{Key: httpapi.Limit(w.KeyHash), TTL: ttl, Why: v.why, Waiting: v.verb != "reject"})
		bar.Add(1)
		if err == nil {
			done = append(done, answer)
			continue
		}
		status := statusOf(err)
		if status == http.StatusBadRequest {
			err = fmt.Errorf("%w: if the provisioner is of an earlier version than this command, ask with its own, or name the machines one by one", err)
		}
		errs = append(errs, err)
		if status >= http.StatusInternalServerError {
			failing++ // perhaps it cannot read what it has of this machine, perhaps it has no store
		}
		if left := len(meant) - i - 1; failing > maxFailing || status < http.StatusInternalServerError && status != http.StatusNotFound && status != http.StatusConflict {
			if left > 0 {
				errs = append(errs, fmt.Errorf("%s: run this again", counted(left, "machine was not tried", "machines were not tried")))
			}
			break
		}
	}
	bar.Done()
	tell := v.print
	if len(done) > 0 {
		tell = v.printDone
	}
	errs = append(errs, tell(done, func() error {
		if len(done) > 0 { // else it is said what was in the way of each
			v.say("%s %s", counted(len(done), "machine is", "machines are"), v.done)
		}
		return nil
	}))
	return errors.Join(errs...)
}

// maxFailing is for how many machines a provisioner may fail that answers; chosen, as
// --max-failures of other orders.
const maxFailing = 10

// statusOf returns the status of an answer, 0 if there was none: nobody is there, whoever is
// says nothing, or somebody has interrupted it.
func statusOf(err error) int {
	if p := (*httpapi.Problem)(nil); errors.As(err, &p) {
		return p.Status
	}
	return 0
}

// confirm shows whom a verdict is about and asks, unless that was answered.
func (v *nodeVerdictVerb) confirm(ctx context.Context, meant []*provisioner.Waiter) error {
	if v.yes {
		return nil
	}
	// Not on standard output, which is for what was done.
	if err := writeWaiting(os.Stderr, meant); err != nil {
		return err
	}
	if !cli.IsTerminal(os.Stdin) {
		return cli.Usage(program+" node "+v.verb, fmt.Errorf("%s %s? Nobody is there to ask: say --yes", v.verb, counted(len(meant), "machine", "machines")))
	}
	return confirm(ctx, os.Stdin, os.Stderr, fmt.Sprintf("%s %s?", v.verb, counted(len(meant), "machine", "machines")))
}
