package cli

import (
	"maps"
	"slices"

	"github.com/alecthomas/kingpin/v2"
)

// A flagText is the help of a flag, and the name of its value: empty for a flag without one.
type flagText struct{ value, help string }

// flagTexts has every flag of both programs. A flag means the same in every verb. A verb adds its target and default
// only.
var flagTexts = map[string]flagText{
	// Which installation is asked, and how the answer looks.
	"config": {"FILE", "Configuration file: provisioner.yaml, or the agent's server.conf."},
	"login": {
		"FILE",
		"With --url: file with an operator's key and certificate, with a token of 'muster operator token', or " +
			"with root certificates to trust. Repeatable.",
	},
	"output":          {"FORM", "Form of the output: table, wide, json, jsonl, csv or name."},
	"passphrase-file": {"FILE", "File with the passphrase of private keys. See 'muster help environment'."},
	"url":             {"URL", "Ask a provisioner over HTTPS at https://HOST:PORT, not the one on this machine."},
	"utc":             {"", "Show times in UTC, not in local time."},
	"why":             {"TEXT", "Reason of the change, kept with it. Needed with --url."},

	// Which nodes, tokens and events are meant.
	"address":   {"ADDRESS-OR-RANGE", "Only nodes that ask from this address or range, such as 192.0.2.0/24."},
	"all":       {"", "All nodes to which the verb applies. Filters narrow them down."},
	"by-source": {"", "Count the pending keys of each address."},
	"by":        {"NAME", "Only orders of names that begin so, such as operator:anna or root."},
	"code":      {"CODE", "Only refusals and alarms with this code."},
	"cursor":    {"CURSOR", "Continue where an earlier list ended: the member \"next\" of its JSON."},
	"expires-before": {
		"SPAN-OR-TIME",
		"Only nodes whose certificate ends before then: a span from now, such as 7d, or a time.",
	},
	"fact": {
		"NAME=VALUE",
		"Only nodes with this fact. A * in VALUE matches any text; an empty VALUE matches nodes without the " +
			"fact. Repeatable: all must match.",
	},
	"fingerprint": {"HASH", "SHA-256 of the node's public key, in hex, or its first 8 digits or more."},
	"follow":      {"", "Continue with new events until interrupted."},
	"identity": {
		"NAME",
		"Identity of a node, its full host name. In limits a pattern such as 'web*.example.net', repeatable.",
	},
	"limit": {"N", "List at most this many; 0 for all."},
	"match": {"PATTERN", "Only nodes whose name matches, label by label, such as 'web*.example.net'."},
	"node":  {"NAME", "Only the node with this name."},
	"policy": {
		"DIGEST",
		"Only nodes admitted by the policy with this digest. The first digits of the digest are enough.",
	},
	"protocol": {"NAME", "Only nodes that enrolled over this protocol: muster, or choria for Choria servers."},
	"prefix":   {"TEXT", "Only nodes whose name begins with this text."},
	"rejected": {"", "List rejected keys, not pending nodes."},
	"since":    {"SPAN-OR-TIME", "Begin at this time: a span before now, such as 12h or 7d, or a time."},
	"site":     {"SITE", "Site that the command is about, such as ams1. In limits, repeatable."},
	"stuck":    {"", "Only service certificates that are stuck, as their nodes report."},
	"waiting":  {"", "Only service certificates that wait for an approval."},
	"expiring": {
		"SPAN-OR-TIME",
		"Only service certificates that end before then, or have ended: a span from now, such as 7d, or a time.",
	},
	"sort":     {"ORDER", "Order: name, expires, changed, state, site, seen or connected; with - the reverse."},
	"state":    {"STATE", "Only those in this state: of nodes enrolled, provisioned, revoked or retired. Repeatable."},
	"token-id": {"ID", "Only nodes that used the token with this id."},
	"type": {
		"TYPE",
		"Only events whose type begins with this text, such as node.refused. The prefix io.muster. may be left out.",
	},
	"connected": {"YES-OR-NO", "Only nodes of the fleet that are connected to a broker, or not: yes, no or unknown."},
	"for": {
		"SPAN-OR-TIME",
		"Only nodes whose connection has lasted, or been lost, for this long: a span such as 10m, or a time.",
	},
	"faulty": {"", "Only nodes that report what keeps them from renewing."},
	"unseen": {
		"SPAN-OR-TIME",
		"Only nodes that have not been seen since then: a span before now, such as 30d, or a time.",
	},

	// How a change is made.
	"any-name": {
		"",
		"Allow a pattern that covers every name: with it, the holder of any token can enroll any node.",
	},
	"awaiting":      {"", "Keep the name for a one-time token, a grant or an approval."},
	"concurrency":   {"N", "How many nodes are handled at a time."},
	"dry-run":       {"", "Show what would be done, and do nothing."},
	"expires":       {"SPAN-OR-TIME", "When the entry ends: a span from now, such as 2h or 7d, or a time."},
	"force":         {"", "Replace files that exist."},
	"left":          {"N", "How many more nodes may enroll with the token."},
	"max-failures":  {"N", "Stop when more than this many nodes have failed."},
	"one-time":      {"", "Make a one-time token, with which a Puppet agent takes the name."},
	"install":       {"", "Write the file with which certmonger knows muster, and exit."},
	"revoke":        {"", "Also remove key and certificate, and revoke the certificate."},
	"renewals":      {"", "Also stop the renewal of certificates."},
	"source":        {"NAME", "Name of the list in the file. Entries of other lists stay."},
	"timeout":       {"SPAN", "With --wait: how long to wait for each node, such as 90s or 5m."},
	"token-file":    {"FILE", "File with the provisioning token."},
	"validity":      {"SPAN", "How long the token or certificate is valid, such as 12h, 30d or 1y."},
	"without-token": {"", "Also admit Puppet agents that have no token."},
	"wait":          {"", "Wait until each node has carried out the command."},
	"yes":           {"", "Do not ask for confirmation."},

	// Tokens and the keys that sign them.
	"ca":         {"FILE", "Certificate of the only authority that nodes accept, PEM."},
	"default":    {"", "Provision a node unless its configuration says not to."},
	"extensions": {"JSON", "Further claims of the token, a JSON object."},
	"facts":      {"FILE", "File on the node with its facts, an object in JSON or YAML."},
	"insecure":   {"", "Provision without TLS, for nodes without a certificate. --no-insecure for TLS."},
	"name": {
		"NAME",
		"Name of the signer in logs and policies. If not given: the certificate's common name, else the file's " +
			"name.",
	},
	"not-before": {
		"SPAN-OR-TIME",
		"When the token becomes valid: a span from now, or a time such as 2027-01-31T12:00:00Z.",
	},
	"org":          {"NAME", "Organization of the token."},
	"password":     {"SECRET", "Password of the broker's user while provisioning."},
	"protocol-v2":  {"", "Use Choria's protocol version 2."},
	"registration": {"FILE", "File on the node whose content the agent publishes regularly."},
	"seal": {
		"FILE",
		"Public key to which nodes encrypt token and requests: the seal.pub of 'muster provisioner init', or " +
			"its text. Choria servers cannot use such a token.",
	},
	"secret-file": {"FILE", "File with the secret of the token, which nodes and provisioner share."},
	"show-secret": {"", "With -o json: show the token's secrets."},
	"srv":         {"DOMAIN", "Domain whose SRV records name the brokers, in place of --urls."},
	"token": {
		"SECRET",
		"Secret of the token. The list of processes shows it: use --secret-file. If neither is given, the " +
			"terminal asks.",
	},
	"upgrade":  {"", "Allow upgrades of the agent."},
	"urls":     {"URLS", "Brokers, HOST:PORT with commas between. Repeatable."},
	"username": {"NAME", "User of the broker while provisioning."},
	"uses":     {"N", "Limit the token to this many nodes."},

	// Operators.
	"certificate":  {"", "Make a key and a certificate for the operator."},
	"installation": {"ID", "Id of the installation, as 'muster operator add' and 'muster status' print it."},
	"key":          {"FILE", "The operator's private key, such as the file of --login."},
	"names":        {"PATTERN", "Nodes that the role foreman may manage, such as 'build-*.example.net'. Repeatable."},
	"out": {
		"PATH",
		"Write the operator's file of --certificate there, not to NAME.pem; or a setup into this new directory.",
	},
	"public-key": {"FILE", "The operator's public key, P-256, P-384 or Ed25519."},
	"role": {
		"ROLE",
		"viewer sees everything, operator changes nodes and tokens, admin changes signers, operators and authority. " +
			"foreman is for Foreman, and reaches the nodes of --names alone.",
	},

	// Policies.
	"input": {"FILE", "Facts about a node as the policy's input, JSON; - is standard input."},

	// Provisioners and brokers.
	"accept-loss":    {"", "Accept that missing data is lost: nothing brings it back."},
	"broker-address": {"IP", "IP address at which nodes reach the broker. Repeatable."},
	"broker-name":    {"HOST", "Host name at which nodes reach the broker; the host if not given. Repeatable."},
	"broker-urls": {
		"URLS",
		"Brokers of a NATS cluster to use in place of an embedded one, such as tls://n1:4222,tls://n2:4222.",
	},
	"check":          {"", "Exit with 1 if an operator must act."},
	"cluster":        {"NAME", "Name of the cluster."},
	"cluster-listen": {"HOST:PORT", "Address at which the broker listens for other brokers of the cluster."},
	"dir":            {"DIR", "Directory of the broker's files on its machine."},
	"encrypt-keys":   {"", "Encrypt all private keys with a passphrase."},
	"host":           {"HOST", "Host name of the provisioner or broker; names of brokers are unique in a cluster."},
	"hub":            {"HOST:PORT", "Address at which a broker of the hub accepts leaves. Repeatable."},
	"if-missing":     {"", "Do nothing if DIR has a setup, and exit with 0."},
	"leaf":           {"HOST", "Host name of a site's broker that may connect as a leaf. Repeatable."},
	"leaf-listen":    {"HOST:PORT", "Address at which the broker listens for brokers of sites."},
	"listen":         {"HOST:PORT", "Address at which the broker listens for nodes and provisioners."},
	"log-format":     {"FORM", "Form of the log on standard error: text or json."},
	"log-level": {
		"LEVEL",
		"Lowest level that is logged: debug, info, warn or error. If not given: info, or log_level of server.conf.",
	},
	"max-connections": {"N", "Limit of the broker's connections."},
	"max-store-bytes": {"N", "Limit of the broker's streams, in bytes. Default: three quarters of the free space."},
	"replicas":        {"N", "How many brokers keep each record."},
	"root-key":        {"FILE", "Private key of the present root certificate. If not given: root-key.pem beside it."},
	"route":           {"HOST:PORT", "Address of another broker of the cluster. Repeatable."},
	"socket": {
		"PATH",
		"Socket of the agent on this machine. If not given: below /run for the default --ssl-dir, else in it.",
	},
	"ssl-dir": {
		"DIR",
		"Directory for the key, the certificates and the other files of provisioning. Files of other programs stay.",
	},
	"store-dir":       {"DIR", "Directory of the broker's streams. If not given: store, below --dir."},
	"trust-domain":    {"DOMAIN", "Trust domain of SPIFFE IDs in certificates. If not given: the host's domain."},
	"trust-first-use": {"", "For labs: admit every node whose name is new."},
	"validate":        {"", "Load and check everything, then exit."},
	"keep":            {"N", "Keep this many backups in the directory, and remove older ones."},
	"verify":          {"", "Read an existing backup and check that it is complete. No provisioner is asked."},
	"write":           {"", "Write the directory, with a new key and certificate."},

	// Demo and bench.
	"applied": {
		"",
		"Only the wave that confirms; with --no-applied only the wave that enrolls. If not given: both.",
	},
	"choria": {
		"",
		"Simulate Choria servers, each over a TLS connection of its own, that get certificates from the gateway.",
	},
	"connections":  {"HOW", "per-node for one TCP connection per node, or shared for 16 in all."},
	"facts-bytes":  {"N", "Size of each node's facts; 0 for 2 KB."},
	"files":        {"DIR", "Keep all files in this new directory."},
	"idle":         {"N", "Keep this many provisioned nodes connected during the run."},
	"key-type":     {"TYPE", "Type of the signer's key: rsa4096 or ed25519."},
	"nodes":        {"N", "How many nodes to simulate."},
	"provisioners": {"N", "How many provisioners beside a separate broker; 0 for one with its broker embedded."},
	"puppet": {
		"",
		"Simulate Puppet agents: certificates, runs, and lists of certificates. With --connections shared, agents " +
			"get their certificates over 16 connections that are kept.",
	},
	"rate":   {"N", "Nodes that start per second; 0 for as fast as possible."},
	"sealed": {"", "Encrypt requests to a seal key."},
	"service-certificates": {
		"",
		"Connect 1,000 nodes over mutual TLS, and have them ask for --nodes service certificates.",
	},
	"stay":   {"", "Keep the fleet running until Ctrl-C."},
	"stored": {"N", "Put this many records into the store first."},
	"tls":    {"", "Connect nodes over TLS."},
}

// Flag adds a flag of the table to a command.
func Flag(c *kingpin.CmdClause, name string) *kingpin.FlagClause {
	text := flagTexts[name]
	f := c.Flag(name, text.help)
	if text.value != "" {
		f.PlaceHolder(text.value)
	}
	return f
}

// FlagText returns the placeholder and the help text of a flag, and whether there is one of that name.
func FlagText(name string) (value, help string, ok bool) {
	text, ok := flagTexts[name]
	return text.value, text.help, ok
}

// FlagNames returns the names of all flags, sorted.
func FlagNames() []string { return slices.Sorted(maps.Keys(flagTexts)) }
