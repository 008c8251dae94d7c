package policies

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
)

// refused are the built-in functions that reach network, files or environment, handle keys, or return something else at
// each call. Without them a decision depends only on input and data, and can be replayed.
var refused = []string{
	"http.send", "net.lookup_ip_addr", "json.match_schema", "json.verify_schema", "opa.runtime",
	"rego.parse_module", "trace",
	"rand.intn", "uuid.rfc4122", "io.jwt.encode_sign", "io.jwt.encode_sign_raw", "providers.aws.sign_req",
}

// capabilities are OPA's without [refused], and without hosts to fetch schemas from.
func capabilities() *ast.Capabilities {
	c := ast.CapabilitiesForThisVersion()
	c.Builtins = slices.DeleteFunc(c.Builtins, func(b *ast.Builtin) bool { return slices.Contains(refused, b.Name) })
	c.AllowNet = []string{} // nil: any
	return c
}
