// Package daemon assembles the provisioner from provisioner.yaml. It is wiring only, shared by `muster provisioner
// run`, `muster demo` and the test fleet.
package daemon
