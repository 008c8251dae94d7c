// Package wire is the protocol between a node, the broker and a provisioner:
// identities, subjects, messages, refusal codes, limits and their strict
// decoding. Both sides share it and nothing else, so whatever must be spelled
// the same by both is here.
//
// Messages are JSON objects inside an [Envelope]. Decoding is strict in both
// directions: a duplicate or unknown member, a member in the wrong case,
// trailing bytes, another version and an oversized message are refused before
// anything else looks at them. A decoder returns either a message or an error,
// never both.
//
// # Trust
//
// Nothing that this package decodes is authenticated. A request's fields are
// what the sender claims; the provisioner proves them one by one. A reply in
// plain mode is what somebody on the network says; the server checks it
// against its key, its request and the pinned authority.
//
// The package imports the standard library only, keeps no state and is safe
// for concurrent use throughout.
package wire
