package policies

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/tester"
)

// testTimeout bounds one test; a test makes several decisions.
const testTimeout = 5 * time.Second

// A TestResult is the result of one rule `test_...`.
type TestResult struct {
	Name    string   `json:"name"` // such as "data.muster.enroll_test.test_stranger_waits"
	File    string   `json:"file"`
	Line    int      `json:"line"`
	Result  string   `json:"result"`           // "pass", "fail", or "skip" if the name begins with "todo_"
	Error   string   `json:"error,omitempty"`  // other than "fail"
	Failed  []string `json:"failed,omitempty"` // failed cases, if the test has cases
	Output  string   `json:"output,omitempty"` // of print
	Elapsed float64  `json:"seconds"`
}

// test runs the policy's tests with the same limits as decisions. The error wraps [ErrInvalid] if they do not compile,
// or is the context's.
func (p *policy) test(ctx context.Context) ([]TestResult, error) {
	ch, err := tester.NewRunner().
		SetCompiler(p.compiler(ctx)).
		SetModules(p.tests).
		SetStore(p.store).
		SetTimeout(testTimeout).
		RaiseBuiltinErrors(true).
		CapturePrintOutput(true).
		RunTests(ctx, nil)
	if err != nil {
		return nil, invalid(compileErrors(err))
	}
	results := []TestResult{}
	for r := range ch { // read to the end, so that the runner's goroutines end
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
		Result:  "fail",
		Output:  string(r.Output),
		Elapsed: r.Duration.Seconds(),
	}
	switch {
	case r.Skip:
		t.Result = "skip"
	case r.Pass():
		t.Result = "pass"
	}
	if r.Error != nil {
		t.Error = r.Error.Error()
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

// failures returns [ErrInvalid] with a line for each failed test, nil without one.
func failures(results []TestResult) error {
	var errs []error
	for _, r := range results {
		if r.Result == "fail" {
			errs = append(errs, fmt.Errorf("%s:%d: fail %s %q %s", r.File, r.Line, r.Name, r.Failed, r.Error))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return invalid(errs)
}
