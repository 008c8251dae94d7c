// Package trust keeps revocations, spent token uses, CRLs, and the trusted signers and operators. It does not know the
// store: a [Log] holds the entries, and a [Journal] a copy outside of the store. Reads are from memory.
package trust
