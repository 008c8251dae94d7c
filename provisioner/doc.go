// Package provisioner decides about enrollment: it verifies the claims of a request, asks the policy, issues the
// certificate and keeps the record. It knows no transport, file or database. [Provisioner.Enroll] says why a crash at
// any step is harmless.
//
// It verifies, in this order: the form of the identity, the token and its limits, possession of the key, and the key's
// right to the identity. The policy is asked last. Facts stay unproven.
package provisioner
