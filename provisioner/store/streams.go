package store

import (
	"cmp"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
)

// Streams and their subjects. They are never renamed.
const (
	streamNodes       = "MUSTER_NODES"
	streamClaims      = "MUSTER_CLAIMS"
	streamEntries     = "MUSTER_ENTRIES"
	streamRevocations = "MUSTER_REVOCATIONS"
	streamEvents      = "MUSTER_EVENTS"
	streamAttempts    = "MUSTER_ATTEMPTS"
	streamInputs      = "MUSTER_INPUTS"

	// Nodes write these themselves, without a limit.
	streamLifecycle = "MUSTER_LIFECYCLE"
	streamAlive     = "MUSTER_ALIVE" // when each node was last heard of; only the last message counts

	subjectNode         = "muster.node."
	subjectClaims       = "muster.claims."
	subjectEntries      = "muster.entry.>"
	subjectRevocation   = "muster.revocation." // + key
	subjectInstallation = "muster.entry.installation"
	subjectToken        = "muster.entry.token."
	subjectEvent        = "muster.event."
	subjectAttempt      = "muster.attempt."
	subjectInputs       = "muster.inputs"
)

// History is how many revisions of a record are kept, as `history` shows them. More would let a flapping node fill the
// disk.
const History = 64

// Limits of the event streams on a disk with enough room; the oldest go first. An event has about 500 bytes.
const (
	maxEventBytes     = 1 << 30
	maxAttemptBytes   = 64 << 20
	maxLifecycleBytes = 256 << 20

	// maxLifecycle and maxNodeEvent bound one node to 2.4 MiB of lifecycle events, a hundredth of the stream.
	// maxLifecycle is one more than is read of a node, so that a reader sees that there were more. Our own agents'
	// events have 450 bytes.
	maxLifecycle = MaxNodeEvents + 1
	maxNodeEvent = 4 << 10
)

// minDuplicateWindow is JetStream's minimum for remembering message ids. Neither records nor events have ids. A
// starting broker reads all messages of this window, by default two minutes: a million after a storm, with all subjects
// in memory. A node that gave its events ids of 4 KiB made the broker remember 2.6 GB within 15 s.
const minDuplicateWindow = 100 * time.Millisecond

// streams returns the configurations of all streams, entries first (see [NewImport]). No stream has a maximum age,
// since a clock that jumps must not delete anything.
func streams(replicas int, capacity, inputBytes int64) []jetstream.StreamConfig {
	// A direct read may come from a lagging replica. With more than one replica, reads go to the leader.
	direct := replicas == 1
	// Events are reports; the truth is in the records. Syncing each event slowed enrollment by a fifth to two fifths
	// (measured, BenchmarkEnroll). A cluster does not support this mode.
	mode := jetstream.DefaultPersistMode
	if replicas == 1 {
		mode = jetstream.AsyncPersistMode
	}
	// Reports are not acknowledged: a node chooses where its acknowledgement goes, and on a broker with an older
	// configuration that could be another node's record subject.
	capped := func(bytes, share int64) int64 { // on a disk with this capacity
		if capacity > 0 {
			return min(bytes, capacity/share)
		}
		return bytes
	}
	return []jetstream.StreamConfig{
		republishing(jetstream.StreamConfig{
			Name: streamEntries, Subjects: []string{subjectEntries}, MaxMsgsPerSubject: History, DenyDelete: true, DenyPurge: true, Replicas: replicas,
			Description: "installation, grants, tokens seen, signers, the clock's mark",
		}),
		{Name: streamNodes, Subjects: []string{subjectNode + "*"}, MaxMsgsPerSubject: History, DenyDelete: true, DenyPurge: true, Replicas: replicas, AllowDirect: direct, AllowAtomicPublish: true, Duplicates: minDuplicateWindow,
			Description: "one subject per identity; its revisions are the node's history"},
		// A lost message would give a use back. So this is never a key-value bucket, whose history ends at 64.
		{Name: streamClaims, Subjects: []string{subjectClaims + "*"}, MaxMsgsPerSubject: -1, DenyDelete: true, DenyPurge: true, Replicas: replicas, AllowDirect: true,
			Description: "one subject per limited token; what is spent of it"},
		// Never deleted, neither by age or size nor by hand: a lost revocation admits a node.
		republishing(jetstream.StreamConfig{
			Name: streamRevocations, Subjects: []string{subjectRevocation + ">"}, DenyDelete: true, DenyPurge: true, Replicas: replicas,
			Description: "revoked tokens, revoked and retired nodes, in the order of their revocation",
		}),
		// The oldest go if too many nodes wait: a node that still waits asks again.
		{Name: streamWaiting, Subjects: []string{subjectWaiting + ">"}, MaxMsgsPerSubject: 1, MaxBytes: capped(maxWaitingBytes, 32), Replicas: replicas, AllowDirect: direct,
			Description: "one subject per key that waits for an identity"},
		// State of some seconds ago; not in backups.
		{Name: streamComponents, Subjects: []string{subjectComponent + "*"}, MaxMsgsPerSubject: 1, MaxBytes: capped(maxComponentBytes, 256), Replicas: replicas, AllowDirect: direct,
			Description: "one subject per provisioner: its features"},
		{Name: streamEvents, Subjects: []string{subjectEvent + ">"}, MaxBytes: capped(maxEventBytes, 8), Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "CloudEvents of provisioners"},
		{Name: streamAttempts, Subjects: []string{subjectAttempt + ">"}, MaxBytes: capped(maxAttemptBytes, 32), Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "attempts that failed authentication"},
		{Name: streamLifecycle, Subjects: subjectsOfNodes(lifecycleTypes...), MaxBytes: capped(maxLifecycleBytes, 32), MaxMsgsPerSubject: maxLifecycle, MaxMsgSize: maxNodeEvent,
			Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "CloudEvents of nodes: one subject per node and type"},
		// One message for each node without a total limit, which would drop living nodes of a large fleet.
		{Name: streamAlive, Subjects: subjectsOfNodes(aliveType), MaxMsgsPerSubject: 1, MaxMsgSize: maxNodeEvent,
			Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "one subject per node; when it was last heard of"},
		{Name: streamInputs, Subjects: []string{subjectInputs}, MaxBytes: capped(cmp.Or(inputBytes, DefaultInputBytes), 8), Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "what decisions saw, in batches"},
	}
}

// lifecycleTypes end the subjects of nodes' own events, except the repeated aliveType.
var lifecycleTypes = []string{"startup", "provisioned", "shutdown"}

const aliveType = "alive"

func subjectsOfNodes(types ...string) (subjects []string) {
	for _, t := range types {
		subjects = append(subjects, strings.TrimSuffix(wire.AllNodeEvents, "*")+t)
	}
	return subjects
}
