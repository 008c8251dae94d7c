package policy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/policies"
)

const testHelp = `Compiles a policy as the provisioner does and runs its tests, under the limits that
decisions have. No provisioner is asked.

  muster policy test prov/policy
  muster policy test policy.rego policy_test.rego --json

Exits with 0 if all tests pass, 1 if it does not compile, has no tests, or one of them
fails, 2 if the command line makes no sense.`

func addTest(parent *kingpin.CmdClause, all cli.Verbs) {
	var paths []string
	var o verb.Output
	c := parent.Command("test", "Run the tests of a policy.").HelpLong(testHelp)
	c.Arg("policy", "Rego files, or directories of them.").Required().StringsVar(&paths)
	o.AddJSON(c)
	all[c.FullCommand()] = func(ctx context.Context) error { return runTests(ctx, &o, paths) }
}

// resultJSON is a test's result for programs.
type resultJSON struct {
	Name    string   `json:"name"`
	File    string   `json:"file"`
	Line    int      `json:"line"`
	Result  string   `json:"result"` // "pass", "fail" or "skip"
	Error   string   `json:"error,omitempty"`
	Failed  []string `json:"failed,omitempty"`
	Output  string   `json:"output,omitempty"`
	Elapsed float64  `json:"seconds"`
}

func newResult(r *policies.TestResult) resultJSON {
	j := resultJSON{
		Name:    r.Name,
		File:    r.File,
		Line:    r.Line,
		Result:  "fail",
		Failed:  r.Failed,
		Output:  r.Output,
		Elapsed: r.Elapsed.Seconds(),
	}
	switch {
	case r.Passed:
		j.Result = "pass"
	case r.Skipped:
		j.Result = "skip"
	}
	if r.Err != nil {
		j.Error = r.Err.Error()
	}
	return j
}

func runTests(ctx context.Context, o *verb.Output, paths []string) error {
	results, err := policies.Test(ctx, policies.Config{Paths: paths})
	if err != nil {
		return err
	}
	all, failed := []resultJSON{}, 0
	for i := range results {
		r := newResult(&results[i])
		if all = append(all, r); r.Result == "fail" {
			failed++
		}
	}
	if err := verb.Show(o, all, showResults); err != nil {
		return err
	}
	if len(all) == 0 {
		return errors.New("the policy has no tests: write rules test_... in a file named *_test.rego")
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d tests failed", failed, len(all))
	}
	return nil
}

func showResults(all []resultJSON) io.WriterTo {
	if len(all) == 0 {
		return nil
	}
	t := cli.NewTable("TEST", "RESULT", "WHERE", "WHY")
	for _, r := range all {
		why := append(slices.Clone(r.Failed), strings.TrimSpace(r.Error+" "+strings.TrimSpace(r.Output)))
		t.Add(r.Name, r.Result, fmt.Sprintf("%s:%d", r.File, r.Line), strings.Trim(strings.Join(why, ", "), ", "))
	}
	return t
}
