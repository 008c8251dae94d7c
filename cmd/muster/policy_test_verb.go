package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/internal/cli"
	"muster/policies"
)

// policyTestVerb is "muster policy test".
type policyTestVerb struct {
	paths []string
	json  bool
}

const policyTestHelp = `Compiles a policy as the provisioner does and runs its tests, under the limits that
decisions have. No provisioner is asked.

  muster policy test prov/policy
  muster policy test policy.rego policy_test.rego --json

Exits with 0 if all tests pass, 1 if it does not compile, has no tests, or one of them
fails, 2 if the command line makes no sense.`

func addPolicyTest(parent *kingpin.CmdClause, all verbs) {
	v := &policyTestVerb{}
	c := parent.Command("test", "Run the tests of a policy.").HelpLong(policyTestHelp)
	c.Arg("policy", "Rego files, or directories of them.").Required().StringsVar(&v.paths)
	c.Flag("json", "Print JSON for programs.").BoolVar(&v.json)
	all[c.FullCommand()] = v.run
}

// testJSON is a test's result for programs.
type testJSON struct {
	Name    string   `json:"name"`
	File    string   `json:"file"`
	Line    int      `json:"line"`
	Result  string   `json:"result"` // "pass", "fail" or "skip"
	Error   string   `json:"error,omitempty"`
	Failed  []string `json:"failed,omitempty"`
	Output  string   `json:"output,omitempty"`
	Elapsed float64  `json:"seconds"`
}

func (v *policyTestVerb) run(ctx context.Context) error {
	results, err := now(ctx, func() ([]policies.TestResult, error) {
		return policies.Test(ctx, policies.Config{Paths: v.paths})
	})
	if err != nil {
		return err
	}
	var t cli.Table
	t.Add("TEST", "RESULT", "WHERE", "WHY")
	all, failed := []testJSON{}, 0
	for _, r := range results {
		j := testJSON{Name: r.Name, File: r.File, Line: r.Line, Result: "fail", Failed: r.Failed, Output: r.Output, Elapsed: r.Elapsed.Seconds()}
		switch {
		case r.Passed:
			j.Result = "pass"
		case r.Skipped:
			j.Result = "skip"
		default:
			failed++
		}
		if r.Err != nil {
			j.Error = r.Err.Error()
		}
		all = append(all, j)
		why := append(append([]string(nil), r.Failed...), strings.TrimSpace(j.Error+" "+strings.TrimSpace(r.Output)))
		t.Add(r.Name, j.Result, fmt.Sprintf("%s:%d", r.File, r.Line), strings.Trim(strings.Join(why, ", "), ", "))
	}
	if v.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		err = e.Encode(all)
	} else if len(results) > 0 {
		_, err = t.WriteTo(os.Stdout)
	}
	switch {
	case err != nil:
		return err
	case len(results) == 0:
		return errors.New("the policy has no tests: write rules test_... in a file named *_test.rego")
	case failed > 0:
		return fmt.Errorf("%d of %d tests failed", failed, len(results))
	}
	return nil
}
