package provisioner

import "muster/provisioner/trust"

// A Journal keeps revocations outside the store: what a restored backup would make it forget. It is safe for concurrent
// use. What Append has written is on disk when it returns nil; after an error none, some or all of it is.
type Journal interface {
	// Append writes the revocations that it does not have yet.
	Append(entries ...*trust.Revocation) error

	// Entries returns all revocations in the order in which they were written.
	Entries() ([]*trust.Revocation, error)
}
