package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/tester"
)

// testTimeout bounds one test of a policy. A decision may take a second, and
// a test makes several; chosen so that a test that loops is soon found out.
const testTimeout = 5 * time.Second

// A TestResult is the result of one rule `test_...` of a policy.
type TestResult struct {
	Name    string        // as "data.muster.enroll_test.test_stranger_waits"
	File    string        // where the rule is
	Line    int           // from 1
	Passed  bool          // false if skipped
	Skipped bool          // its name begins with "todo_"
	Err     error         // what went wrong, other than that it does not hold; or nil
	Failed  []string      // the cases of the test that failed, if it has cases
	Output  string        // of print, with line feeds; "" if none
	Elapsed time.Duration // of this test
}

// String says on one line what came of the test, with its file and line.
func (r TestResult) String() string {
	what := "fail"
	switch {
	case r.Passed:
		what = "pass"
	case r.Skipped:
		what = "skip"
	}
	s := fmt.Sprintf("%s:%d: %s %s", r.File, r.Line, what, r.Name)
	if len(r.Failed) > 0 {
		s += fmt.Sprintf(" %q", r.Failed)
	}
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// test runs the policy's own tests, under the same rules as decisions. The
// results are in the order of the files. The error is of tests that cannot be
// compiled (it wraps [ErrInvalid]), or the context's.
func (p *policy) test(ctx context.Context) ([]TestResult, error) {
	ch, err := tester.NewRunner().
		SetCompiler(p.compiler(ctx).WithEnablePrintStatements(true)).
		SetModules(p.tests).
		SetStore(p.store).
		SetTimeout(testTimeout).
		RaiseBuiltinErrors(true).
		CapturePrintOutput(true).
		RunTests(ctx, nil)
	if err != nil {
		return nil, invalid(compileErrors(err))
	}
	var results []TestResult
	for r := range ch { // to the end: the runner's goroutines wait for us
		results = append(results, newTestResult(r))
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("test policy: %w", err)
	}
	slices.SortFunc(results, func(a, b TestResult) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name))
	})
	return results, nil
}

func newTestResult(r *tester.Result) TestResult {
	t := TestResult{
		Name:    r.Package + "." + r.Name,
		Passed:  r.Pass(),
		Skipped: r.Skip,
		Err:     r.Error,
		Output:  string(r.Output),
		Elapsed: r.Duration,
	}
	if r.Location != nil {
		t.File, t.Line = r.Location.File, r.Location.Row
	}
	for name, sub := range r.SubResults.Iter {
		if sub.Fail {
			t.Failed = append(t.Failed, strings.Join(name, "/"))
		}
	}
	return t
}

// failures returns an error with a line for each test that failed, under
// [ErrInvalid]; nil if none did. A skipped test is no failure.
func failures(results []TestResult) error {
	var errs []error
	for _, r := range results {
		if !r.Passed && !r.Skipped {
			errs = append(errs, errors.New(r.String()))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return invalid(errs)
}
