package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sync/errgroup"

	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/policies"
	"muster/provisioner/httpapi"
)

// policyReplayVerb is "muster policy replay".
type policyReplayVerb struct {
	operator
	policy, since, template string
	values                  bool
}

const policyReplayHelp = `Runs a policy over what the provisioner's decisions saw, and lists the machines
that would flip: which verdict it was, which it would be, and why. Of machines that
keep their verdict it says what of their configuration and certificate would differ;
which keys, where the policy in use is the one that decided, and --config has it.

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

func addPolicyReplay(parent *kingpin.CmdClause, all verbs) {
	v := &policyReplayVerb{}
	c := parent.Command("replay", "Run a policy over past decisions, and say what would differ.").HelpLong(policyReplayHelp)
	c.Arg("policy", "Rego file, or directory of them, to try.").Required().StringVar(&v.policy)
	c.Flag("since", "How far back, as 12h or 7d.").Default("24h").StringVar(&v.since)
	c.Flag("template", "Try this template, too, in place of what provisioner.yaml names.").PlaceHolder("FILE").StringVar(&v.template)
	c.Flag("values", "Also show the values of configurations; what is called like a secret is not shown.").BoolVar(&v.values)
	v.add(c, all)
	all.Check(c, func() error { _, err := v.age(); return err })
	all[c.FullCommand()] = v.run
}

// age returns how far back to look.
func (v *policyReplayVerb) age() (time.Duration, error) {
	age, err := cli.ParseDuration(v.since)
	if err == nil && age <= 0 {
		err = errors.New("is 0, want more")
	}
	if err != nil {
		return 0, fmt.Errorf("--since: %w", err)
	}
	return age, nil
}

// errFlips is how the exit status says that machines flip.
var errFlips = errors.New("the policy decides otherwise")

func (v *policyReplayVerb) run(ctx context.Context) error {
	age, err := v.age()
	if err != nil {
		return err
	}
	next, unusable := loadPolicy(ctx, v.policy)
	client, nobody := v.client(ctx)
	tried, unfit := v.tried()
	if err := errors.Join(unusable, unfit, nobody); err != nil {
		return err
	}
	live, err := v.live() //nolint:contextcheck // it takes none: tests of policies are bounded
	if err != nil && !v.elsewhere(err) {
		v.say("the keys of configurations cannot be compared: %v", err)
	}
	was, is, err := v.fallbacks(tried)
	if err != nil {
		return err
	}
	replay := policies.NewReplay(policies.ReplayConfig{Next: next, Live: live, Was: was, Is: is})
	start := time.Now()
	if err := v.replay(ctx, client, replay, age); err != nil {
		return err
	}
	elapsed := time.Since(start)
	report := replay.Report(v.values)
	answer := struct {
		*policies.ReplayReport
		Elapsed float64 `json:"seconds"`
		Rate    float64 `json:"decisions_per_second"`
	}{report, elapsed.Seconds(), float64(report.Decisions) / elapsed.Seconds()}
	if err := v.print(answer, func() error { return writeReplay(report, answer.Rate) }); err != nil {
		return err
	}
	if report.Flipped > 0 {
		return fmt.Errorf("%w about %d of %d machines", errFlips, report.Flipped, report.Nodes)
	}
	return nil
}

// live returns the policy that the provisioner's configuration names.
func (o *operator) live() (*policies.Engine, error) {
	path, err := daemon.PolicyOf(o.config)
	if err != nil {
		return nil, err
	}
	return policies.Load(policies.Config{Paths: []string{path}})
}

// tried returns what is of --template, nil without it.
func (v *policyReplayVerb) tried() (*policies.Fallback, error) {
	if v.template == "" {
		return nil, nil
	}
	f, err := daemon.TemplateFallback(v.template)
	if err != nil {
		return nil, fmt.Errorf("--template: %w", err)
	}
	return f, nil
}

// fallbacks returns what configures machines that their policy gives no
// configuration, and what would, which is tried if that is not nil. Both are nil if
// that is not known here.
func (v *policyReplayVerb) fallbacks(tried *policies.Fallback) (was, is *policies.Fallback, err error) {
	was, err = daemon.FallbackOf(v.config)
	if err != nil && !v.elsewhere(err) {
		v.say("what comes of a template or a helper cannot be compared: %v", err)
	}
	if tried == nil {
		return was, was, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--template: there is none to compare it with: %w", err)
	}
	return was, tried, nil
}

// elsewhere reports whether err only says that this is no provisioner's machine,
// where one is asked over HTTPS and nobody has said that there is a configuration.
func (o *operator) elsewhere(err error) bool {
	return o.url != "" && o.config == defaultConfig && errors.Is(err, fs.ErrNotExist)
}

// replay reads batches and has all cores replay them.
func (v *policyReplayVerb) replay(ctx context.Context, client *httpapi.Client, replay *policies.Replay, age time.Duration) error {
	body, n, err := client.Inputs(ctx, age)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // read to its end, or of no use
	bar := cli.NewProgressOf(os.Stderr, "replaying", "batches", n)
	defer bar.Done()
	g, ctx := errgroup.WithContext(ctx)
	batches := make(chan []byte, runtime.GOMAXPROCS(0))
	g.Go(func() error {
		defer close(batches)
		return eachBatch(body, func(batch []byte) error {
			select {
			case batches <- batch:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			for batch := range batches {
				if _, err := replay.Lines(ctx, batch); err != nil {
					return err
				}
				bar.Add(1)
			}
			return nil
		})
	}
	return g.Wait()
}

// eachBatch calls each for every batch of lines: a blank line ends one. What it
// gets is the callee's.
func eachBatch(r io.Reader, each func([]byte) error) error {
	lines, batch := bufio.NewReaderSize(r, 256<<10), bytes.Buffer{}
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("recorded decisions: %w; the provisioner's log says why", err)
		}
		batch.Write(line)
		if len(line) == 1 || err != nil {
			if err := each(bytes.Clone(batch.Bytes())); err != nil {
				return err
			}
			batch.Reset()
		}
		if err != nil {
			return nil
		}
	}
}

// writeReplay tells a person what a policy would do.
func writeReplay(r *policies.ReplayReport, rate float64) error {
	var t cli.Table
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
	if _, err := t.WriteTo(os.Stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(os.Stdout, "%s about %s replayed, %.0f a second: %s would flip, %d would get something else\n",
		counted(r.Decisions, "decision", "decisions"), counted(r.Nodes, "machine", "machines"), rate, counted(r.Flipped, "machine", "machines"), r.Changed)
	if err != nil {
		return err
	}
	for _, note := range []struct {
		n    int
		says string
	}{
		{r.Redacted, "%d inputs had secrets that were not recorded: a policy that looks at those may decide otherwise\n"},
		{r.Partial, "the template was filled for %d machines from facts that are not whole, with \"" + policies.Redacted + "\" in place of secrets\n"},
		{len(r.Helped), "the configuration of %d machines comes of a helper, which is not run again: what differs of it is not known\n"},
	} {
		if note.n == 0 {
			continue
		}
		if _, err := fmt.Fprintf(os.Stdout, note.says, note.n); err != nil {
			return err
		}
	}
	return nil
}

// differenceText says on one line what a machine would get otherwise.
func differenceText(n *policies.NodeReplay) string {
	var parts []string
	for _, k := range n.Keys {
		sign := map[string]string{"added": "+", "removed": "-", "changed": "~"}[k.What]
		switch {
		case k.Was == "" && k.Is == "":
			parts = append(parts, sign+k.Key)
		case k.What == "changed":
			parts = append(parts, fmt.Sprintf("%s%s %q, was %q", sign, k.Key, k.Is, k.Was))
		default:
			parts = append(parts, fmt.Sprintf("%s%s %q", sign, k.Key, k.Was+k.Is))
		}
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
	text := fmt.Sprintf("by the %s, was by the %s", cmp.Or(n.IsBy, "fallback"), cmp.Or(n.WasBy, "fallback"))
	if n.WasBy == n.IsBy {
		text = fmt.Sprintf("by another %s", n.IsBy)
	}
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, ", ") + ")"
	}
	return "configuration " + text
}
