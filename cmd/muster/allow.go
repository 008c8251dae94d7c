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

const allowHelp = `Machines that were never seen get in if the allow-list has their names, under the
policy that 'muster provisioner init' writes. These entries are in the store, for
every provisioner, beside each one's own allow_list file.`

// addAllow adds "muster allow" with its verbs.
func addAllow(app *kingpin.Application, all verbs) {
	c := app.Command("allow", "Say which machines may enroll without having been seen before.").HelpLong(allowHelp)
	addAllowAdd(c, all)
	addAllowList(c, all)
	addAllowRemove(c, all)
}

// allowAddVerb is "muster allow add".
type allowAddVerb struct {
	operator
	pattern, expires string
	uses             int
	limited, iKnow   bool
}

const allowAddHelp = `PATTERN is a name, or a pattern of names: web*.example.net covers one label,
**.example.net any number. An entry with the same pattern is replaced. With --uses at
most so many machines get in by it, whichever provisioner they come to; those that the
entry before has let in count, unless it has expired or was removed. A lone * is for
labs and wants --i-know.

  muster allow add 'web*.example.net' --expires 2h --uses 5 --why 'rack 4'
  muster allow add build7.example.net --uses 1`

func addAllowAdd(parent *kingpin.CmdClause, all verbs) {
	v := &allowAddVerb{}
	c := parent.Command("add", "Allow names.").HelpLong(allowAddHelp)
	c.Arg("pattern", "A name, or a pattern of names.").Required().StringVar(&v.pattern)
	c.Flag("expires", "When the entry ends, as 2h or 7d from now; never if absent.").PlaceHolder("DURATION").StringVar(&v.expires)
	uses := c.Flag("uses", "How many machines it lets in, 1000 at most; any number if absent.").PlaceHolder("N").IsSetByUser(&v.limited)
	cli.Int(uses, &v.uses)
	c.Flag("i-know", "A lone * is meant: whoever has a token can enroll as anything.").BoolVar(&v.iKnow)
	v.addChange(c, all)
	all.Check(c, func() error { _, err := v.check(); return err })
	all[c.FullCommand()] = v.run
}

// check returns when the entry ends, 0 for never, or all that is wrong with it.
func (v *allowAddVerb) check() (expires time.Duration, err error) {
	var mistakes []error
	if _, err := wire.ParsePattern(v.pattern); err != nil {
		mistakes = append(mistakes, err)
	}
	if provisioner.AnyName(wire.Pattern(v.pattern)) && v.pattern != "" && !v.iKnow {
		mistakes = append(mistakes, fmt.Errorf("%w; --i-know if that is meant", provisioner.ErrEverything))
	}
	if v.expires != "" {
		if expires, err = cli.ParseDuration(v.expires); err != nil {
			mistakes = append(mistakes, fmt.Errorf("--expires: %w", err))
		} else if expires <= 0 {
			mistakes = append(mistakes, errors.New("--expires wants more than nothing"))
		}
	}
	if v.limited && (v.uses < 1 || v.uses > provisioner.MaxAllowanceUses) {
		mistakes = append(mistakes, fmt.Errorf("--uses is %d, want 1 to %d", v.uses, provisioner.MaxAllowanceUses))
	}
	return expires, errors.Join(mistakes...)
}

func (v *allowAddVerb) run(ctx context.Context) error {
	expires, err := v.check()
	if err != nil {
		return err
	}
	var a provisioner.Allowance
	err = v.ask(ctx, http.MethodPost, "/v1/allow", httpapi.NewAllowance{Pattern: v.pattern, Expires: expires, Uses: v.uses, Everything: v.iKnow, Why: v.why}, &a)
	if err != nil {
		return err
	}
	return v.printDone(&a, func() error {
		if provisioner.AnyName(a.Pattern) {
			v.say("warning: %v; it is an alarm until `muster allow remove '%s'`", provisioner.ErrEverything, a.Pattern)
		}
		if a.Uses > 0 {
			v.say("%s may enroll, %s", a.Pattern, allowanceUses(&a))
			return nil
		}
		v.say("%s may enroll", a.Pattern)
		return nil
	})
}

const allowListHelp = `Lists patterns with who has added them, when and why; those that are expired or used
up, too. The entries of a provisioner's own allow_list file are not among them.

  muster allow list
  muster allow list --json`

// allowListVerb is "muster allow list".
type allowListVerb struct{ operator }

func addAllowList(parent *kingpin.CmdClause, all verbs) {
	v := &allowListVerb{}
	c := parent.Command("list", "List the entries of the store, with the uses they have left.").HelpLong(allowListHelp)
	v.add(c, all)
	all[c.FullCommand()] = v.run
}

func (v *allowListVerb) run(ctx context.Context) error {
	var list []*provisioner.Allowance
	if err := v.ask(ctx, http.MethodGet, "/v1/allow", nil, &list); err != nil {
		return err
	}
	return v.print(list, func() error {
		if len(list) == 0 {
			v.say("the store allows no names; entries of provisioners' own files are not listed here")
			return nil
		}
		var t cli.Table
		t.Add("PATTERN", "STATE", "USES", "EXPIRES", "ADDED", "BY", "WHY")
		for _, a := range list {
			if provisioner.AnyName(a.Pattern) && allowanceState(a, time.Now()) == "good" {
				v.say("warning: %s: %v", a.Pattern, provisioner.ErrEverything)
			}
			t.Add(string(a.Pattern), allowanceState(a, time.Now()), allowanceUses(a), instant(a.ExpiresAt), instant(a.At), a.By, a.Why)
		}
		_, err := t.WriteTo(os.Stdout)
		return err
	})
}

// allowanceState says in a word what an entry is good for.
func allowanceState(a *provisioner.Allowance, now time.Time) string {
	switch {
	case !a.ExpiresAt.IsZero() && !now.Before(a.ExpiresAt):
		return "expired"
	case a.Uses > 0 && len(a.UsedBy) >= a.Uses:
		return "used up"
	}
	return "good"
}

func allowanceUses(a *provisioner.Allowance) string {
	if a.Uses == 0 {
		return "unlimited"
	}
	return fmt.Sprintf("%d of %d left", a.Uses-len(a.UsedBy), a.Uses)
}

// allowRemoveVerb is "muster allow remove".
type allowRemoveVerb struct {
	operator
	pattern string
}

const allowRemoveHelp = `Takes an entry off the store's allow-list, on every provisioner within a second.
Machines that got in by it stay. PATTERN is written as 'muster allow list' prints it.

  muster allow remove 'web*.example.net' --why 'rack 4 is done'
  muster allow remove build7.example.net`

func addAllowRemove(parent *kingpin.CmdClause, all verbs) {
	v := &allowRemoveVerb{}
	c := parent.Command("remove", "Allow names no longer.").HelpLong(allowRemoveHelp)
	c.Arg("pattern", "The pattern of the entry.").Required().StringVar(&v.pattern)
	v.addChange(c, all)
	all.Check(c, func() error { _, err := wire.ParsePattern(v.pattern); return err })
	all[c.FullCommand()] = v.run
}

func (v *allowRemoveVerb) run(ctx context.Context) error {
	if err := v.ask(ctx, http.MethodPost, "/v1/allow/remove", httpapi.OldAllowance{Pattern: v.pattern, Why: v.why}, nil); err != nil {
		return err
	}
	return v.printDone(map[string]string{"removed": v.pattern}, func() error {
		// Other entries may cover the names, and so may the file of a provisioner, which nobody asks for here.
		v.say("%s is off the store's allow-list", v.pattern)
		return nil
	})
}
