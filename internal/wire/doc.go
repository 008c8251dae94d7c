// Package wire is the protocol between nodes, brokers and provisioners: identities, subjects, messages, refusal
// codes and limits.
//
// Decoding is strict: an unknown or duplicate member, trailing bytes, another version or an oversized message is an
// error. Decoded messages are not authenticated. The provisioner verifies each field of a request, and the node
// checks a plain reply against its key, its request and the pinned authority.
package wire
