// Package daemon assembles the provisioner from provisioner.yaml, for `muster provisioner run`, `muster demo` and the
// test fleet.
package daemon
