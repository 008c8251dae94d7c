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

// Builtin returns the policies that come with muster, each with its tests:
// default.rego, default_test.rego, then open.rego, open_test.rego. The first
// pair lets a machine in that has been seen, or that the allow-list or its
// token names, and lets others wait for approval. The second pair also lets
// in every name that was never seen, for labs: whoever holds a token can
// then claim any free name. A policy is one pair or the other, not both.
func Builtin() []File { return append(builtin(false), builtin(true)...) }

// builtin returns one of the two policies.
func builtin(open bool) []File {
	if open {
		return []File{{"open.rego", openRego}, {"open_test.rego", openTestRego}}
	}
	return []File{{"default.rego", defaultRego}, {"default_test.rego", defaultTestRego}}
}
