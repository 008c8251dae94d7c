package store

import (
	"github.com/nats-io/nats.go/jetstream"
)

// The stream of revocations, each on its key.
const (
	streamRevocations = "MUSTER_REVOCATIONS"
	subjectRevocation = "muster.revocation."
)

// revocationsStream is the configuration of the stream of revocations. Nothing
// of it is ever deleted, for age, size or by hand: a revocation that is
// forgotten lets somebody in.
func revocationsStream(replicas int) jetstream.StreamConfig {
	return taken(jetstream.StreamConfig{
		Name:        streamRevocations,
		Subjects:    []string{subjectRevocation + ">"},
		DenyDelete:  true,
		DenyPurge:   true,
		Replicas:    replicas,
		Description: "revoked tokens, revoked and retired nodes, in the order of their revocation",
	})
}
