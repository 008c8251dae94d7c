// Package policy implements "muster policy": testing, replaying and reloading policies.
package policy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/internal/daemon"
	"muster/internal/wire"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/fleet"
	"muster/provisioner/httpapi"
	"muster/provisioner/operate"
)

const help = `A policy is Rego, package muster.enroll. docs/policies.md describes its input and
its decision. test and eval need no provisioner; replay asks one for past decisions.`

// Add adds the verbs.
func Add(app *kingpin.Application, all cli.Verbs) {
	c := app.Command("policy", "Test policies and reload them.").HelpLong(help)
	addTest(c, all)
	addEval(c, all)
	addReplay(c, all)
	addReload(c, all)
}

const reloadHelp = `Makes one provisioner read its policy now: the one on this machine, or the one of
--url. A policy that does not compile or whose tests fail is refused: the policy in
use stays, an alarm is active until the files are right, and the exit status is 1.

  muster policy reload
  muster policy reload --why 'racks 4 to 9'`

func addReload(parent *kingpin.CmdClause, all cli.Verbs) {
	c := parent.Command("reload", "Make the provisioner read its policy again.").HelpLong(reloadHelp)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (*operate.PolicyInUse, error) {
		return verb.Post[*operate.PolicyInUse](ctx, o, "/v1/policy/reload", httpapi.Reason{Why: o.Why})
	}, func(o *verb.Operator, in *operate.PolicyInUse) fmt.Stringer {
		if in.Before == in.Digest {
			o.Say("policy %.12s is in use, unchanged", in.Digest)
		} else {
			o.Say("policy %.12s is in use, in place of %.12s", in.Digest, in.Before)
		}
		warn(in.Warnings)
		return nil
	})
}

func load(path string, preview *provisioner.Preview) (*policies.Engine, error) {
	return policies.Load(policies.Config{
		Paths:  []string{path},
		Follow: preview.Follow,
		Print:  func(text string) { verb.Say("%s", text) },
	})
}

// policyOnly is the preview without a provisioner's configuration: it has the default limits, and no template.
var policyOnly = &provisioner.Preview{PolicyOnly: true, MaxTTL: ca.DefaultMaxTTL}

// previewOf returns what follows a decision in the provisioner of this machine, if it has one. runHelper also runs the
// helper.
func previewOf(config string, runHelper bool) (*provisioner.Preview, error) {
	preview, err := daemon.LoadPreview(config, runHelper)
	if err == nil || config != verb.DefaultConfig {
		return preview, err
	}
	if _, missing := os.Stat(config); !errors.Is(missing, fs.ErrNotExist) {
		verb.Say("warning: limits, template and reserved names of the provisioner do not count: %v", err)
	}
	return policyOnly, nil
}

// withRecords is preview that asks the provisioner for the records of nodes.
func withRecords(preview *provisioner.Preview, client *httpapi.Client) *provisioner.Preview {
	asking := *preview
	asking.Record = func(ctx context.Context, id wire.Identity) (*provisioner.Record, error) {
		var node fleet.Report
		err := client.Do(ctx, http.MethodGet, "/v1/nodes/"+string(id), nil, &node)
		if p := (*httpapi.Problem)(nil); errors.As(err, &p) && p.Status == http.StatusNotFound {
			return nil, nil
		}
		return node.Record, err
	}
	return &asking
}

func warn(lines []string) {
	for _, line := range lines {
		verb.Say("warning: %s", line)
	}
}

// eachRecorded calls each with the line of every recorded decision, which is valid until the next call.
func eachRecorded(
	ctx context.Context, client *httpapi.Client, age time.Duration, label string, each func(line []byte) error,
) error {
	body, n, err := client.Inputs(ctx, age)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }() // the body was read to its end, or an error is returned already
	bar := cli.NewProgress(os.Stderr, label, "batches", n)
	defer bar.Done()
	lines := bufio.NewReaderSize(body, 256<<10)
	for {
		line, err := lines.ReadBytes('\n')
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("recorded decisions: %w; the provisioner's log says why", err)
		case len(line) == 0:
			return nil
		case len(line) == 1: // a blank line ends a batch
			bar.Add(1)
			continue
		}
		if err := each(line); err != nil {
			return err
		}
	}
}
