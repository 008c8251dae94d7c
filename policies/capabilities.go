package policies

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// refused lists the built-in functions that policies cannot call: those that reach
// the network, files or the environment, hold keys, or give another result each time. A
// decision must depend on its input and data alone: then it can be repeated over
// recorded inputs, and a request can make the provisioner neither reach out nor
// reveal anything. What is slow is bounded by the time-out instead.
//
// time.now_ns stays: it gives `input.time`.
var refused = []string{
	"http.send", "net.lookup_ip_addr", "json.match_schema", "json.verify_schema", "opa.runtime", "rego.parse_module", "trace",
	"rand.intn", "uuid.rfc4122", "io.jwt.encode_sign", "io.jwt.encode_sign_raw", "providers.aws.sign_req",
}

// capabilities returns what policies may use: everything of this OPA but
// [refused], and no host to fetch schemas from.
func capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool { return slices.Contains(refused, b.Name) })
	c.AllowNet = []string{} // nil would mean any
	return c
}
