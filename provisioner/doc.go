// Package provisioner decides over enrollment: it proves what a request claims, asks the policy, issues the
// certificate and keeps the record. It knows no transport, file or database. [Provisioner.Enroll] says why no step
// can lose or double anything.
//
// It proves, in this order: the form of the identity, the token and its limits, possession of the key, and the key's
// right to the identity. The policy is asked last, and facts stay unproven.
package provisioner
