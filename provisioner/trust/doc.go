// Package trust is what must not be believed any more: revoked tokens, nodes, keys and
// certificates, and the CRLs that say so to others.
//
// It knows no store: what it reads and writes is behind [Log], and outside the store behind
// [Journal]. All questions are answered from memory.
package trust
