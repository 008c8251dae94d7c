// Package trust keeps what is not trusted any more: revoked tokens, nodes, keys and certificates, spent token uses, and
// CRLs. It also keeps the trusted signers and operators.
//
// It knows no store: entries are behind [Log], and [Journal] keeps a copy outside of the store. All questions are
// answered from memory.
package trust
