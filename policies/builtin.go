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

// Builtin returns the files of a built-in policy and its tests, by name. The default one admits nodes on record and
// names of the allow-list or of the token; other nodes wait for approval. The open one, for labs, admits every new
// name: any holder of a token can claim a free name.
func Builtin(open bool) map[string]string {
	if open {
		return map[string]string{"open.rego": openRego, "open_test.rego": openTestRego}
	}
	return map[string]string{"default.rego": defaultRego, "default_test.rego": defaultTestRego}
}
