package policy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sync/errgroup"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/policies"
	"muster/provisioner/httpapi"
)

// replay is what the flags of "muster policy replay" say.
type replay struct {
	verb.Operator
	policy, template string
	since            time.Duration
	values           bool
}

const replayHelp = `Runs a policy over what the provisioner's decisions saw, and lists the machines
that would flip: which verdict it was, which it would be, and why. Of machines that
keep their verdict it says what of their configuration and certificate would differ.
It names the keys if the policy in use made the decision, and --config has it.

Where a policy gives no configuration, the template of provisioner.yaml is filled
again with what was recorded, and --template tries another one in its place. A
helper is not run again, since it may do anything: the machines that it configures
are counted, and named in --json.

Nothing is changed. Inputs are recorded without secrets (see inputs in
provisioner.yaml): a policy or a template that looks at one may come to something else
here.

  muster policy replay new-policy
  muster policy replay policy --template new-server.conf
  muster policy replay new-policy --since 7d --values --json

Exits with 0 if no machine flips, 1 if one does or it could not be tried, 2 if the
command line makes no sense.`

func addReplay(parent *kingpin.CmdClause, all cli.Verbs) {
	v := &replay{}
	c := parent.Command("replay", "Run a policy over past decisions, and say what would differ.").HelpLong(replayHelp)
	c.Arg("policy", "Rego file, or directory of them, to try.").Required().StringVar(&v.policy)
	cli.Duration(c.Flag("since", "How far back, as 12h or 7d.").Default("24h"), &v.since, time.Second, 100*cli.Year)
	c.Flag("template", "Try this template, too, in place of what provisioner.yaml names.").PlaceHolder("FILE").StringVar(&v.template)
	c.Flag("values", "Also show the values of configurations; what is called like a secret is not shown.").BoolVar(&v.values)
	v.AddFlags(c)
	all.Check(c, v.CheckURL)
	all[c.FullCommand()] = v.run
}

// A replayed is the report, for programs.
type replayed struct {
	*policies.ReplayReport
	Elapsed float64 `json:"seconds"`
	Rate    float64 `json:"decisions_per_second"`
}

func (v *replay) run(ctx context.Context) error {
	var cfg policies.ReplayConfig
	next, unusable := load(v.policy) //nolint:contextcheck // it takes none: tests of policies are bounded
	client, unreachable := v.Client()
	var unfit error
	if cfg.Next = next; v.template != "" {
		cfg.Is, unfit = daemon.TemplateFallback(v.template)
	}
	if err := errors.Join(unusable, verb.Flag("template", unfit), unreachable); err != nil {
		return err
	}
	if err := v.compare(&cfg); err != nil { //nolint:contextcheck // likewise
		return err
	}
	r := policies.NewReplay(cfg)
	start := time.Now()
	if err := overBatches(ctx, client, r, v.since); err != nil {
		return err
	}
	elapsed := time.Since(start).Seconds()
	report := r.Report(v.values)
	if err := verb.Show(&v.Output, &replayed{report, elapsed, float64(report.Decisions) / elapsed}, showReplay); err != nil {
		return err
	}
	if report.Flipped > 0 {
		return fmt.Errorf("the policy decides otherwise about %d of %d machines", report.Flipped, report.Nodes)
	}
	return nil
}

// compare sets what is compared with: the policy in use, and what configures machines that their policy
// gives no configuration. What is not known here is not compared.
func (v *replay) compare(cfg *policies.ReplayConfig) error {
	// Over HTTPS, this need not be a provisioner's machine.
	elsewhere := func(err error) bool {
		return v.Remote() && v.Config == verb.DefaultConfig && errors.Is(err, fs.ErrNotExist)
	}
	path, err := daemon.PolicyOf(v.Config)
	if err == nil {
		cfg.Live, err = load(path)
	}
	if err != nil && !elsewhere(err) {
		v.Say("the keys of configurations cannot be compared: %v", err)
	}
	cfg.Was, err = daemon.FallbackOf(v.Config)
	if err != nil && !elsewhere(err) {
		v.Say("what comes of a template or a helper cannot be compared: %v", err)
	}
	if v.template == "" {
		cfg.Is = cfg.Was
	} else if err != nil {
		return fmt.Errorf("--template: there is none to compare it with: %w", err)
	}
	return nil
}

// overBatches has all cores replay what the provisioner has recorded.
func overBatches(ctx context.Context, client *httpapi.Client, r *policies.Replay, age time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	err := eachBatch(ctx, client, age, "replaying", func(batch []byte, one func()) error {
		g.Go(func() error {
			_, err := r.Lines(ctx, batch)
			one()
			return err
		})
		return ctx.Err()
	})
	if failed := g.Wait(); failed != nil {
		return failed
	}
	return err
}

// showReplay tells a person what a policy would do.
func showReplay(r *replayed) io.WriterTo {
	t := &cli.Table{}
	if r.Flipped > 0 {
		t.Add("NODE", "WAS", "WOULD BE", "DECISIONS", "WHY")
	}
	for _, n := range r.Differences {
		if n.Flips {
			t.Add(n.Node, string(n.From), string(n.To), fmt.Sprint(n.Times), strings.Join(n.Reasons, "; "))
		}
	}
	if r.Changed > 0 {
		t.Add("NODE", "WOULD DIFFER IN")
	}
	for _, n := range r.Differences {
		if !n.Flips {
			t.Add(n.Node, differenceText(n))
		}
	}
	var b bytes.Buffer // a write into it does not fail
	_, _ = t.WriteTo(&b)
	fmt.Fprintf(&b, "%s about %s replayed, %.0f a second: %s would flip, %d would get something else\n",
		verb.Counted(r.Decisions, "decision", "decisions"), verb.Machines(r.Nodes), r.Rate, verb.Machines(r.Flipped), r.Changed)
	note := func(n int, says string) {
		if n > 0 {
			fmt.Fprintf(&b, says+"\n", n)
		}
	}
	note(r.Redacted, "%d inputs had secrets that were not recorded: a policy that looks at those may decide otherwise")
	note(r.Partial, "the template was filled for %d machines from facts that are not whole, with \""+policies.Redacted+"\" in place of secrets")
	note(len(r.Helped), "the configuration of %d machines comes of a helper, which is not run again: what differs of it is not known")
	return &b
}

// differenceText says on one line what a machine would get otherwise.
func differenceText(n *policies.NodeReplay) string {
	var parts []string
	for _, k := range n.Keys {
		text := map[string]string{"added": "+", "removed": "-", "changed": "~"}[k.What] + k.Key
		switch {
		case k.Was == "" && k.Is == "":
		case k.What == "changed":
			text += fmt.Sprintf(" %q, was %q", k.Is, k.Was)
		default:
			text += fmt.Sprintf(" %q", k.Was+k.Is)
		}
		parts = append(parts, text)
	}
	switch {
	case n.WasBy != "" || n.IsBy != "":
		parts = append(parts, sourceText(n))
	case n.Configuration && len(n.Keys) == 0:
		parts = append(parts, "configuration (which keys is not known: the policy that decided is not at hand)")
	}
	for _, c := range n.Certificate {
		parts = append(parts, "certificate "+c)
	}
	return strings.Join(parts, ", ")
}

// sourceText says on one line what makes a machine's configuration.
func sourceText(n *policies.NodeReplay) string {
	var notes []string
	if n.WasBy == policies.ByHelper || n.IsBy == policies.ByHelper {
		notes = append(notes, "which is not run again")
	} else if len(n.Keys) == 0 {
		notes = append(notes, "its keys are not known")
	}
	if n.Partial {
		notes = append(notes, "of facts that are not whole")
	}
	text := fmt.Sprintf("configuration by the %s, was by the %s", cmp.Or(n.IsBy, "fallback"), cmp.Or(n.WasBy, "fallback"))
	if n.WasBy == n.IsBy {
		text = fmt.Sprintf("configuration by another %s", n.IsBy)
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	return text
}
