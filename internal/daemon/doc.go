// Package daemon puts the provisioner together: from provisioner.yaml to a
// broker, a store, a policy, an authority and the service that joins them. It
// is wiring, shared by `muster provisioner run`, `muster demo` and the tests'
// fleet, so that what is tested is what runs.
package daemon
