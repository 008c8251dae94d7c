# Configures nodes by environment.
#
# The token names the environment in its extensions
# (`--extensions '{"environment": "staging"}'`) and the environment's organization
# (`--org`). Both are signed: a node with a token for development cannot join
# production by sending other facts.
package muster.enroll

environments := {
	"production": {
		"org": "example-production",
		"configuration": {
			"brokers": "broker1.example.net:4222,broker2.example.net:4222",
			"loglevel": "warn",
		},
	},
	"staging": {
		"org": "example-staging",
		"configuration": {
			"brokers": "broker.staging.example.net:4222",
			"loglevel": "info",
		},
	},
	"development": {
		"org": "example-development",
		"configuration": {
			"brokers": "broker.dev.example.net:4222",
			"loglevel": "debug",
			"registerinterval": "60",
		},
	},
}

# Settings of all nodes; those of an environment override them.
common := {
	"identity": input.identity,
	"registerinterval": "300",
	"plugin.choria.server.provision": "false",
}

# The default keeps the deny rules defined for a token without an environment.
environment := object.get(input.token.extensions, "environment", "")

configuration := object.union(common, environments[environment].configuration)

deny contains "the token is for no known environment" if not environments[environment]

deny contains sprintf("tokens for %s are for the organization %q, this one is for %q", [environment, org, input.token.org]) if {
	org := environments[environment].org
	org != input.token.org
}

# A node whose facts name another environment has the wrong image.
deny contains sprintf("the token is for %s, the facts say %v", [environment, input.facts.environment]) if {
	input.facts.environment != environment
}
