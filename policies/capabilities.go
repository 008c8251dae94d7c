package policies

import (
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// refused lists the built-in functions that policies cannot call, with the
// reason that the compiler's error gives. A decision must depend on its input
// and data alone: then it can be repeated over recorded inputs, and a request
// can make the provisioner neither reach out nor reveal anything. What is
// slow is bounded by the time-out instead.
//
// time.now_ns stays: it gives `input.time`.
var refused = map[string]string{
	"http.send":              "a policy reaches no network: bring what it needs to know in facts or data",
	"net.lookup_ip_addr":     "a policy reaches no network: bring what it needs to know in facts or data",
	"json.match_schema":      "a schema may refer to files and URLs",
	"json.verify_schema":     "a schema may refer to files and URLs",
	"opa.runtime":            "it shows the provisioner's environment",
	"rego.parse_module":      "a policy reads no other policy",
	"trace":                  "it has a side effect; use print in tests",
	"rand.intn":              "the same request must get the same decision: use crypto.sha256 of the identity",
	"uuid.rfc4122":           "the same request must get the same decision: use crypto.sha256 of the identity",
	"io.jwt.encode_sign":     "a policy holds no keys",
	"io.jwt.encode_sign_raw": "a policy holds no keys",
	"providers.aws.sign_req": "a policy holds no keys",
}

// capabilities returns what policies may use: everything of this OPA but
// [refused], and no host to fetch schemas from.
func capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool {
		_, no := refused[b.Name]
		return no
	})
	c.AllowNet = []string{} // nil would mean any
	return c
}

// explain adds to a compiler's error why a function is unknown, if it is one
// that we refuse.
func explain(e *ast.Error) *ast.Error {
	name, ok := strings.CutPrefix(e.Message, "undefined function ")
	if reason, no := refused[name]; ok && no {
		with := *e
		with.Message = name + " is not available to policies: " + reason
		return &with
	}
	return e
}
