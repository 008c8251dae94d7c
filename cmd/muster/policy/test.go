package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/policies"
)

const testHelp = `Compiles a policy as the provisioner does and runs its tests, with the limits of real
decisions. Warnings name what may be a mistake, such as a misspelled rule. No
provisioner is asked.

  muster policy test prov/policy
  muster policy test policy.rego policy_test.rego -o json

Exits with 0 if all tests pass, 1 if the policy does not compile, has no tests, or a
test fails, 2 if the command line is wrong.`

func addTest(parent *kingpin.CmdClause, all cli.Verbs) {
	var paths []string
	var s verb.Setup
	c := parent.Command("test", "Run the tests of a policy.").HelpLong(testHelp)
	c.Arg("policy", "Rego files, or directories of Rego files.").Required().StringsVar(&paths)
	s.AddFlags(c)
	all[c.FullCommand()] = func(ctx context.Context) error { return runTests(ctx, &s, paths) }
}

func runTests(ctx context.Context, s *verb.Setup, paths []string) error {
	preview, err := previewOf(s.Config, false)
	if err != nil {
		return err
	}
	results, warnings, err := policies.Test(ctx, policies.Config{Paths: paths, Follow: preview.Follow})
	if err != nil {
		return err
	}
	warn(warnings)
	failed := 0
	for _, r := range results {
		if r.Result == "fail" {
			failed++
		}
	}
	answer := map[string][]policies.TestResult{"tests": append([]policies.TestResult{}, results...)}
	if err := verb.Show(&s.Output, answer, showResults); err != nil {
		return err
	}
	if len(results) == 0 {
		return errors.New("the policy has no tests: write rules test_... in a file named *_test.rego")
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d tests failed", failed, len(results))
	}
	return nil
}

func showResults(answer map[string][]policies.TestResult) fmt.Stringer {
	all := answer["tests"]
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
