package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/span"
	"muster/policies"
)

// replay holds the flags of "muster policy replay".
type replay struct {
	verb.Operator
	policy string
	since  time.Duration
}

const replayHelp = `Runs a policy over the recorded inputs of past decisions, and lists the nodes whose
verdict changes: the old verdict, the new one, and why.

Configurations and certificates are checked as in an enrollment; no helper is run.
Nothing is changed. Inputs are recorded without secrets (see inputs in
provisioner.yaml): a policy that looks at one may decide differently here.

  muster policy replay new-policy
  muster policy replay new-policy --since 7d -o json

Exits with 0 if no verdict changes, 1 if one does or the policy was not tried, 2 if
the command line is wrong.`

func addReplay(parent *kingpin.CmdClause, all cli.Verbs) {
	v := &replay{}
	c := parent.Command("replay", "Show which past decisions a policy would change.").HelpLong(replayHelp)
	c.Arg("policy", "Rego file, or directory of Rego files.").Required().StringVar(&v.policy)
	cli.Since(cli.Flag(c, "since").Default("24h"), &v.since, time.Second, 100*span.Year)
	v.AddFlags(c)
	all.Check(c, v.CheckURL)
	all[c.FullCommand()] = v.run
}

func (v *replay) run(ctx context.Context) error {
	client, unreachable := v.Client()
	preview, misconfigured := policyOnly, error(nil)
	if !v.Remote() && unreachable == nil {
		preview, misconfigured = previewOf(v.Config, false)
	}
	if misconfigured != nil {
		return misconfigured
	}
	if unreachable == nil {
		preview = withRecords(preview, client)
	}
	next, unusable := load(v.policy, preview) //nolint:contextcheck // tests of policies are bounded
	if err := errors.Join(unusable, unreachable); err != nil {
		return err
	}
	warn(next.Warnings())
	r := policies.NewReplay(next)
	err := eachRecorded(ctx, client, v.since, "replaying", func(line []byte) error {
		recorded, err := policies.ParseRecording(line)
		if err == nil {
			r.Add(ctx, recorded)
		}
		return cmp.Or(err, ctx.Err())
	})
	if err != nil {
		return err
	}
	report := r.Report()
	if err := verb.Show(&v.Output, report, showReplay); err != nil {
		return err
	}
	if report.Flipped > 0 {
		return fmt.Errorf("the policy decides differently about %d of %d nodes", report.Flipped, report.Nodes)
	}
	return nil
}

func showReplay(r *policies.ReplayReport) fmt.Stringer {
	t := &cli.Table{}
	if r.Flipped > 0 {
		t.Add("NODE", "WAS", "WOULD BE", "DECISIONS", "WHY")
	}
	for _, n := range r.Differences {
		t.Add(n.Node, string(n.From), string(n.To), fmt.Sprint(n.Times), strings.Join(n.Reasons, "; "))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s about %s replayed: the verdict of %s would change\n",
		t, verb.Counted(r.Decisions, "decision", "decisions"), verb.Nodes(r.Nodes), verb.Nodes(r.Flipped))
	if r.Redacted > 0 {
		fmt.Fprintf(&b, "%d inputs had secrets that were not recorded: "+
			"a policy that reads them may decide differently\n", r.Redacted)
	}
	return &b
}
