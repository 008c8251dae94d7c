// Package wire is the protocol between nodes, brokers and provisioners: identities, subjects, messages, refusal
// codes and limits.
//
// Messages are JSON objects inside an [Envelope]. Decoding is strict: an unknown or duplicate member, a member in
// the wrong case, trailing bytes, another version or an oversized message is an error.
//
// Nothing that this package decodes is authenticated. The provisioner verifies each field of a request. The node
// checks a plain reply against its key, its request and the pinned authority.
//
// The package keeps no state and is safe for concurrent use.
package wire
