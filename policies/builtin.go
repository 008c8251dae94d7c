package policies

import _ "embed"

var (
	//go:embed builtin/default.rego
	defaultRego string
	//go:embed builtin/default_test.rego
	defaultTestRego string
	//go:embed builtin/open.rego
	openRego string
	//go:embed builtin/open_test.rego
	openTestRego string
)

// Builtin returns the files of a policy that comes with muster, and its tests, by
// name. It lets a machine in that has been seen, or that the allow-list or its
// token names, and lets others wait for approval. The open one also lets
// in every name that was never seen, for labs: the holder of a token can
// then claim any free name.
func Builtin(open bool) map[string]string {
	if open {
		return map[string]string{"open.rego": openRego, "open_test.rego": openTestRego}
	}
	return map[string]string{"default.rego": defaultRego, "default_test.rego": defaultTestRego}
}
