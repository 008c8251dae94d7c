# Configuration per environment.
#
# The environment is what the signer wrote into the token's extensions
# (`--extensions '{"environment": "staging"}'`), and each environment has an
# organization that its tokens are for (`--org`). Both are signed, so a machine with
# a token for development cannot get into production by what it says of itself.
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

# What all machines get; an environment may say otherwise.
common := {
	"identity": input.identity,
	"registerinterval": "300",
	"plugin.choria.server.provision": "false",
}

# Always defined, or `not` of what depends on it would be undefined as well.
environment := object.get(input.token.extensions, "environment", "")

configuration := object.union(common, environments[environment].configuration)

deny contains "the token is for no known environment" if not environments[environment]

deny contains sprintf("tokens for %s are for the organization %q, this one is for %q", [environment, org, input.token.org]) if {
	org := environments[environment].org
	org != input.token.org
}

# A machine that thinks it is elsewhere has the wrong image.
deny contains sprintf("the token is for %s, the facts say %v", [environment, input.facts.environment]) if {
	input.facts.environment != environment
}
