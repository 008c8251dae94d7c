// Package trust keeps revocations, spent token uses, CRLs, and the trusted signers and operators. It knows no store:
// entries are behind [Log], and [Journal] keeps a copy outside of the store. All questions are answered from memory.
package trust
