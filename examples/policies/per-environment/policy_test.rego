package muster.per_environment_test

import data.muster.enroll

request(environment, org, facts) := {
	"identity": "web1.example.net",
	"token": {"org": org, "extensions": {"environment": environment}},
	"facts": facts,
}

test_configuration_per_environment[environment] if {
	some environment, loglevel in {"production": "warn", "staging": "info", "development": "debug"}
	machine := request(environment, sprintf("example-%s", [environment]), {})
	c := enroll.configuration with input as machine
	c.loglevel == loglevel
	c.identity == "web1.example.net"
	count(enroll.deny) == 0 with input as machine
}

test_environment_says_otherwise if {
	c := enroll.configuration with input as request("development", "example-development", {})
	c.registerinterval == "60"
	d := enroll.configuration with input as request("production", "example-production", {})
	d.registerinterval == "300"
}

test_facts_may_agree if {
	count(enroll.deny) == 0 with input as request("staging", "example-staging", {"environment": "staging"})
}

test_denied[what] if {
	some what, machine in {
		"organization of another environment": request("production", "example-development", {}),
		"organization that every token has": request("production", "choria", {}),
		"unknown environment": request("attic", "example-attic", {}),
		"facts disagree": request("development", "example-development", {"environment": "production"}),
		"environment is no text": request(["production"], "example-production", {}),
		"no environment": {"identity": "web1.example.net", "token": {"org": "example-production", "extensions": {}}, "facts": {}},
	}
	count(enroll.deny) > 0 with input as machine
}
