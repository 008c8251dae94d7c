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

	// These are written by nodes themselves, as much as they like.
	streamLifecycle = "MUSTER_LIFECYCLE"
	streamAlive     = "MUSTER_ALIVE" // when each was last heard of: of that only the last counts

	subjectNode         = "muster.node."
	subjectClaims       = "muster.claims."
	subjectEntries      = "muster.entry.>"
	subjectRevocation   = "muster.revocation." // + its key
	subjectInstallation = "muster.entry.installation"
	subjectToken        = "muster.entry.token."
	subjectEvent        = "muster.event."
	subjectAttempt      = "muster.attempt."
	subjectInputs       = "muster.inputs"
)

// History is how many revisions of a record are kept: what `history` shows of
// a node. More would let a node that flaps fill the disk.
const History = 64

// Bounds of the event streams on a disk that has room; the oldest go first. An event is about 500
// bytes.
const (
	maxEventBytes     = 1 << 30
	maxAttemptBytes   = 64 << 20
	maxLifecycleBytes = 256 << 20

	// maxLifecycle bounds the events of one type that a node can have there, as
	// maxNodeEvent does each of them: so it has 2.4 MiB at most, about a hundredth,
	// and takes room from nobody else. One more than is read of a node, so that it is
	// seen that there were more. Ours have 450 bytes.
	maxLifecycle = MaxNodeEvents + 1
	maxNodeEvent = 4 << 10
)

// leastDuplicates is the shortest time for which JetStream remembers ids of messages
// (its own minimum). Records have none, since their revision is what makes a doubled write
// harmless. But a broker that starts reads all messages of that time, two minutes by default:
// after a storm a million of them, whose subjects it then keeps in memory a second time.
// What nodes say has none either, and a node that gave its events some of 4 KiB each had
// the broker remember 2.6 GB of them after 15 s.
const minDuplicateWindow = 100 * time.Millisecond

// streams are the configurations of all streams; that of entries comes first, see [NewImport]. None has a maximum age: a
// clock that jumps must not delete anything.
func streams(replicas int, capacity, inputBytes int64) []jetstream.StreamConfig {
	// With one replica a direct read is answered by the only copy. With more it
	// may come from one that lags, so those reads go to the leader.
	direct := replicas == 1
	// Events are reports: what a power failure takes of the last moment is in the
	// records. Syncing each of them as well made enrollment slower by a fifth to
	// two fifths (measured, BenchmarkEnroll). Only one replica can do without.
	mode := jetstream.DefaultPersistMode
	if replicas == 1 {
		mode = jetstream.AsyncPersistMode
	}
	// A node that publishes an event chooses where the acknowledgement would go,
	// and that is a subject of this account, another's record say, at a broker that
	// was configured before events were services. So reports are not acknowledged;
	// nobody waits for it.
	capped := func(bytes, share int64) int64 { // on a disk of that capacity
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
		// A message that is gone would be a use that is back: never a key-value
		// bucket, whose history ends at 64.
		{Name: streamClaims, Subjects: []string{subjectClaims + "*"}, MaxMsgsPerSubject: -1, DenyDelete: true, DenyPurge: true, Replicas: replicas, AllowDirect: true,
			Description: "one subject per limited token; what is spent of it"},
		// Nothing of it is ever deleted, for age, size or by hand: a revocation that is forgotten admits a node.
		republishing(jetstream.StreamConfig{
			Name: streamRevocations, Subjects: []string{subjectRevocation + ">"}, DenyDelete: true, DenyPurge: true, Replicas: replicas,
			Description: "revoked tokens, revoked and retired nodes, in the order of their revocation",
		}),
		// The oldest go where too many wait: a node that still does asks again.
		{Name: streamWaiting, Subjects: []string{subjectWaiting + ">"}, MaxMsgsPerSubject: 1, MaxBytes: capped(maxWaitingBytes, 32), Replicas: replicas, AllowDirect: direct,
			Description: "one subject per key that waits for an identity"},
		// It says what was the case some seconds ago and is in no backup.
		{Name: streamComponents, Subjects: []string{subjectComponent + "*"}, MaxMsgsPerSubject: 1, MaxBytes: capped(maxComponentBytes, 256), Replicas: replicas, AllowDirect: direct,
			Description: "one subject per provisioner: its features"},
		{Name: streamEvents, Subjects: []string{subjectEvent + ">"}, MaxBytes: capped(maxEventBytes, 8), Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "CloudEvents of provisioners"},
		{Name: streamAttempts, Subjects: []string{subjectAttempt + ">"}, MaxBytes: capped(maxAttemptBytes, 32), Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "attempts that failed authentication"},
		{Name: streamLifecycle, Subjects: subjectsOfNodes(lifecycleTypes...), MaxBytes: capped(maxLifecycleBytes, 32), MaxMsgsPerSubject: maxLifecycle, MaxMsgSize: maxNodeEvent,
			Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "CloudEvents of nodes: one subject per node and type"},
		// One for each node, however many there are: a bound on all of them would have
		// nodes that live count as unheard of, in a fleet that is large enough.
		{Name: streamAlive, Subjects: subjectsOfNodes(aliveType), MaxMsgsPerSubject: 1, MaxMsgSize: maxNodeEvent,
			Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "one subject per node; when it was last heard of"},
		{Name: streamInputs, Subjects: []string{subjectInputs}, MaxBytes: capped(cmp.Or(inputBytes, DefaultInputBytes), 8), Replicas: replicas, AllowDirect: true, PersistMode: mode, NoAck: true, Duplicates: minDuplicateWindow,
			Description: "what decisions saw, in batches"},
	}
}

// lifecycleTypes are the last parts of the subjects of what nodes say themselves, but for aliveType, which they repeat.
var lifecycleTypes = []string{"startup", "provisioned", "shutdown"}

const aliveType = "alive"

// subjectsOfNodes are those of all nodes' own events of some types.
func subjectsOfNodes(types ...string) (subjects []string) {
	for _, t := range types {
		subjects = append(subjects, strings.TrimSuffix(wire.AllNodeEvents, "*")+t)
	}
	return subjects
}
