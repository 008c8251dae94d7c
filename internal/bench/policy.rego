# The policy of `muster bench`: about what a fleet's looks like. It reads a
# handful of facts and gives each node a certificate and a configuration.
package muster.enroll

default allow := false

allow if {
	input.node.reason in {"new", "replay", "continue"}
	input.facts.environment in {"production", "staging"}
	endswith(input.identity, ".bench.muster")
}

allow if { # a Puppet agent sends no facts with its request
	input.source.protocol == "puppet"
	input.node.reason in {"new", "replay", "continue", "renew"}
	endswith(input.identity, ".bench.muster")
}

deny contains "machines in quarantine stay out" if input.facts.quarantine == true

deny contains sprintf("%d MB of memory is not enough", [input.facts.memory_mb]) if input.facts.memory_mb < 1024

deny contains sprintf("the facts are of %q", [input.facts.fqdn]) if input.facts.fqdn != input.identity

deny contains "the certificate request is for another name" if {
	input.csr.common_name != input.identity
	input.csr.common_name != "" # a Choria server with an Ed25519 key sends no request
}

brokers := {"ams1": "nats://broker1.ams1.bench.muster:4222", "fra1": "nats://broker1.fra1.bench.muster:4222"}

certificate := {"ttl": "720h"} if input.facts.virtual == false

configuration := {
	"identity": input.identity,
	"brokers": brokers[input.facts.datacenter],
	"collectives": concat(",", ["bench", input.facts.datacenter]),
	"classes": sprintf("role::%s,os::%s", [input.facts.role, input.facts.os.name]),
	"registration_interval": "300s",
	"loglevel": "info",
} if input.source.protocol in {"muster", "puppet"}

configuration := {
	"identity": input.identity,
	"plugin.choria.middleware_hosts": brokers[input.facts.datacenter],
	"collectives": concat(",", ["bench", input.facts.datacenter]),
	"rpcauthorization": "0",
	"registerinterval": "300",
	"loglevel": "info",
} if input.source.protocol == "choria"
