package httpapi

import (
	"net/http"

	"github.com/google/jsonschema-go/jsonschema"

	"muster/provisioner/fleet"
)

// A description says what a route is for.
type description struct {
	does   string      // in a sentence
	inputs []parameter // of the query and the header
	fails  []int       // statuses beyond those of [failures]
}

// descriptions has every route of the table: one without cannot be served.
var descriptions = map[string]description{
	"GET /healthz":      {does: "Says that the process runs."},
	"GET /readyz":       {does: "Says whether it can enroll nodes, and if not what keeps it."},
	"GET /metrics":      {does: "Metrics for Prometheus.", fails: notFound},
	"GET /openapi.json": {does: "This document."},
	"GET /v1/ca":        {does: "The installation and its roots."},
	"GET /v1/ca.pem":    {does: "The roots in PEM, as curl --cacert takes them."},
	"GET /v1/crl":       {does: "The newest CRL of each issuer, the present one's first.", fails: notFound},
	"GET /v1/crl.pem":   {does: "The newest CRL of each issuer in PEM, the present one's first.", fails: notFound},
	"GET /v1/crl.der": {does: "The newest CRL of one issuer in DER.", fails: notFound,
		inputs: []parameter{query("issuer", "key identifier of the issuer, lower-case hex; the present one if not given", text)}},

	"GET /features":            {does: "The names of the features that run at this provisioner, as Foreman's registration protocol has them."},
	"GET /v2/features":         {does: "The features of this provisioner by name: state, settings, capabilities (Foreman's registration protocol, version 2)."},
	"GET /v1/components":       {does: "All provisioners of the installation, gone ones too, and what their features do."},
	"GET /v1/status":           {does: "The installation at a glance: provisioners, nodes by state, refusals, and what stands."},
	"GET /v1/settings":         {does: "Where enrollment is paused."},
	"POST /v1/settings/pause":  {does: "Lets nobody enroll, everywhere or at a site, until it is resumed."},
	"POST /v1/settings/resume": {does: "Ends a pause."},

	"GET /v1/self":                     {does: "Who you are here, and your role."},
	"GET /v1/operators":                {does: "Operators, removed ones too."},
	"POST /v1/operators":               {does: "Lets an operator in, or changes role and key of one who is there."},
	"POST /v1/operators/{name}/remove": {does: "Keeps an operator out."},

	"GET /v1/tokens":                {does: "Tokens that were used, issued or revoked here, with their counts."},
	"GET /v1/tokens/{tid}":          {does: "One token, with who used it."},
	"POST /v1/tokens/identify":      {does: "The id of a token whose text you have. The text goes nowhere but into the verifier."},
	"POST /v1/tokens/issued":        {does: "Lists a one-time token that you have signed, good for 30 days at most, until it is used or expires."},
	"POST /v1/tokens/{tid}/revoke":  {does: "Makes a token worthless. Who came in with it stays: the answer names them."},
	"POST /v1/tokens/{tid}/release": {does: "Gives back a use of a limited token whose node never came."},
	"POST /v1/tokens/{tid}/thaw":    {does: "Makes a token good again that a restore has frozen."},

	"GET /v1/signers":              {does: "Who signs tokens, removed ones too."},
	"POST /v1/signers":             {does: "Trusts a signer of tokens."},
	"POST /v1/signers/{id}/remove": {does: "Makes all tokens of a signer worthless."},

	"GET /v1/nodes":                         {does: "Nodes, a page at a time.", inputs: nodeInputs, fails: notFound},
	"GET /v1/nodes/{identity}":              {does: "One node: its record, and the newest grant."},
	"GET /v1/nodes/{identity}/history":      {does: "What happened to a node, by whom and why."},
	"GET /v1/nodes/{identity}/explain":      {does: "Why a node stands as it does, and what you can do."},
	"POST /v1/nodes/{identity}/revoke":      {does: "Keeps a machine out for good."},
	"POST /v1/nodes/{identity}/retire":      {does: "Frees the name of a machine that is gone."},
	"POST /v1/nodes/{identity}/grant":       {does: "Lets another key take the name over, once."},
	"POST /v1/nodes/{identity}/reprovision": {does: "Has a node enroll again, by its own key.", fails: commandFails},
	"POST /v1/nodes/{identity}/reconfigure": {does: "Pushes a freshly decided configuration without a new certificate.", fails: commandFails},
	"POST /v1/nodes/{identity}/restart":     {does: "Restarts a node's agent.", fails: commandFails},
	"POST /v1/nodes/{identity}/shutdown":    {does: "Ends a node's agent.", fails: commandFails},

	"GET /v1/waiting": {does: "Who waits for an operator, with what they presented, and who was rejected.",
		inputs: []parameter{
			query("prefix", "beginning of the name", text), query("name", "pattern of names; may be given several times, and one has to match", texts),
			query("site", "of the broker that it reached", text), query("token", "id of the token that it presented, or 8 hex digits of its beginning or more", text),
			query("from", "address that it came from, or a range as 192.0.2.0/24", text),
			query("fact", "name=value that it presented, with * and ?; may be given several times, and each has to match", texts),
		}},
	"POST /v1/nodes/{identity}/approve": {does: "Lets a key that waits have its name."},
	"POST /v1/nodes/{identity}/reject":  {does: "Refuses a key that waits."},
	"POST /v1/nodes/{identity}/forget":  {does: "Drops what waits under a name, and what was said of it."},

	"GET /v1/allow":         {does: "The allow-list that all provisioners share."},
	"POST /v1/allow":        {does: "Allows names that match a pattern."},
	"POST /v1/allow/remove": {does: "Takes a pattern off the allow-list.", fails: notFound},

	"GET /v1/policy":         {does: "The policy that decides, and its shadow."},
	"POST /v1/policy/reload": {does: "Reads the policy files again; takes them only if they compile and their tests pass.", fails: []int{http.StatusUnprocessableEntity}},
	"GET /v1/inputs": {does: "What decisions saw, JSON lines with a blank line after each batch; the header Muster-Batches has their number.",
		inputs: []parameter{needed(query("age", "how far back, as 24h", text))}, fails: notFound},

	"GET /v1/events": {does: "Events as server-sent events (data is a StoredEvent), or as JSON lines to who accepts those: past ones, then those that come.",
		inputs: eventInputs, fails: notFound},

	"GET /v1/attempts": {does: "Who fails most at this provisioner since it started: sources and tokens, with their counts.",
		inputs: []parameter{query("top", "how many of each, 20 if not given", &jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(1.0)})}},
	"GET /v1/webhooks":              {does: "The webhooks of this provisioner, and how far each is."},
	"POST /v1/webhooks/{name}/test": {does: "Sends a signed event for a test, and says what came back.", fails: notFound},

	"POST /v1/clock/accept": {does: "Takes the provisioner's clock for right against the newest time on record."},
	"POST /v1/backup":       {does: "A backup, as a stream that ends in the proof that it is whole; the header Muster-Messages says about how long it is.", fails: notFound},
}

var (
	notFound     = []int{http.StatusNotFound}
	commandFails = []int{http.StatusGatewayTimeout}

	text    = &jsonschema.Schema{Type: "string"}
	texts   = &jsonschema.Schema{Type: "array", Items: text}
	instant = &jsonschema.Schema{Type: "string", Format: "date-time"}
)

var nodeInputs = []parameter{
	query("state", "any of these; may be given several times", &jsonschema.Schema{Type: "array", Items: enum(states)}),
	query("site", "site of the token", text),
	query("prefix", "beginning of the name", text),
	query("match", "pattern of names, as web*.example.net", text),
	query("expires_before", "has a certificate that ends before", instant),
	query("seen_before", "not heard of since, or never", instant),
	query("token", "id of the token it enrolled with", text),
	query("policy", "digest of the policy that decided last, or its beginning", text),
	query("fact", "name=value of a fact that is kept (fleet.facts), with * and ?, or name= for who has not said it; may be given several times, and each has to match", texts),
	query("sort", "name if not given", enum(orders)),
	query("cursor", "next of the page before, with the same filter and order", text),
	query("limit", "nodes on a page", &jsonschema.Schema{Type: "integer", Minimum: jsonschema.Ptr(1.0), Maximum: jsonschema.Ptr(float64(fleet.MaxLimit))}),
}

var eventInputs = []parameter{
	{Name: "Last-Event-ID", In: "header", Description: "id of the last event that you have: go on behind it", Schema: text},
	query("after", "the same, for who cannot send the header", text),
	query("since", "begin at this time; without it and after: now", instant),
	query("type", "beginning of the type, as io.muster.node.", text),
	query("node", "identity", text),
	query("code", "why it was refused, or the alarm's", enum(codes())),
	query("once", "end with the newest event that there is", &jsonschema.Schema{Type: "boolean"}),
}

func query(name, what string, s *jsonschema.Schema) parameter {
	return parameter{Name: name, In: "query", Description: what, Schema: s}
}

func needed(p parameter) parameter {
	p.Required = true
	return p
}
