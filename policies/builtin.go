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

// Builtin returns the files of a built-in policy and its tests, by file name. The default policy admits nodes on
// record, and names of the allow-list or of the token. The open policy, for labs, admits any new name.
func Builtin(open bool) map[string]string {
	if open {
		return map[string]string{"open.rego": openRego, "open_test.rego": openTestRego}
	}
	return map[string]string{"default.rego": defaultRego, "default_test.rego": defaultTestRego}
}
