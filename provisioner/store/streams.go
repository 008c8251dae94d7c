package store

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
)

// Never rename these.
const (
	streamNodes       = "MUSTER_NODES"
	streamClaims      = "MUSTER_CLAIMS"
	streamEntries     = "MUSTER_ENTRIES"
	streamRevocations = "MUSTER_REVOCATIONS"
	streamEvents      = "MUSTER_EVENTS"
	streamAttempts    = "MUSTER_ATTEMPTS"
	streamInputs      = "MUSTER_INPUTS"

	// Nodes write these themselves.
	streamLifecycle = "MUSTER_LIFECYCLE"
	streamAlive     = "MUSTER_ALIVE" // when each node was last heard of

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

// History is how many revisions of a record are kept. More would let a flapping node fill the disk.
const History = 64

// At these limits the oldest events are dropped. An event has about 500 bytes.
const (
	maxEventBytes     = 1 << 30
	maxAttemptBytes   = 64 << 20
	maxLifecycleBytes = 256 << 20

	// These limit one node to a hundredth of the stream. One event more than is read shows that there were more.
	maxLifecycle = MaxNodeEvents + 1
)

// minDuplicateWindow is JetStream's minimum for remembering message ids, which muster does not use. A node with ids of
// 4 KiB made the broker remember 2.6 GB.
const minDuplicateWindow = 100 * time.Millisecond

// streams returns the configuration of every stream, streamEntries first, as [NewImport] needs it. No stream has a
// maximum age, since a clock that jumps must not delete anything.
func streams(replicas int, capacity, inputBytes int64) []jetstream.StreamConfig {
	capped := func(bytes, share int64) int64 {
		if capacity > 0 {
			return min(bytes, capacity/share)
		}
		return bytes
	}
	direct := replicas == 1 // a direct read may come from a lagging replica
	all := slices.Concat(
		durableConfigs(direct),
		stateConfigs(direct, capped),
		reportConfigs(direct, inputBytes, capped),
	)
	for i := range all {
		all[i].Replicas = replicas
	}
	return all
}

func durableConfigs(direct bool) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		republishing(jetstream.StreamConfig{
			Name:              streamEntries,
			Subjects:          []string{subjectEntries},
			MaxMsgsPerSubject: History,
			DenyDelete:        true,
			DenyPurge:         true,
			Description:       "operators' orders, the installation, tokens seen, the clock's mark",
		}),
		{
			Name:               streamNodes,
			Subjects:           []string{subjectNode + "*"},
			MaxMsgsPerSubject:  History,
			DenyDelete:         true,
			DenyPurge:          true,
			AllowDirect:        direct,
			AllowAtomicPublish: true,
			Duplicates:         minDuplicateWindow,
			Description:        "one subject per identity; its revisions are the node's history",
		},
		// One revision each: revocations name former certificates, and events are the history.
		republishing(jetstream.StreamConfig{
			Name:               streamCertificates,
			Subjects:           []string{subjectCertificate + ">"},
			MaxMsgsPerSubject:  1,
			DenyDelete:         true,
			DenyPurge:          true,
			AllowAtomicPublish: true,
			Duplicates:         minDuplicateWindow,
			Description:        "one subject per service certificate of a node",
		}),
		// No key-value bucket: its history ends at 64, and a lost message would free a use.
		{
			Name:              streamClaims,
			Subjects:          []string{subjectClaims + "*"},
			MaxMsgsPerSubject: -1,
			DenyDelete:        true,
			DenyPurge:         true,
			AllowDirect:       true,
			Description:       "one subject per limited token; its claims and releases",
		},
		// Revocations are never deleted: a lost one would admit a node.
		republishing(jetstream.StreamConfig{
			Name:        streamRevocations,
			Subjects:    []string{subjectRevocation + ">"},
			DenyDelete:  true,
			DenyPurge:   true,
			Description: "revoked tokens, revoked and retired nodes, in the order of their revocation",
		}),
	}
}

func stateConfigs(direct bool, capped func(bytes, share int64) int64) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		// A full stream refuses new pending keys: no node can displace another node's key.
		{
			Name:              streamWaiting,
			Subjects:          []string{subjectWaiting + ">"},
			MaxMsgsPerSubject: 1,
			MaxBytes:          capped(maxWaitingBytes, 32),
			Discard:           jetstream.DiscardNew,
			AllowDirect:       direct,
			Description:       "one subject per key that waits for an identity",
		},
		// The streams below are not in backups. A full one admits no more Choria servers.
		{
			Name:              streamLeases,
			Subjects:          []string{subjectLeases + "*"},
			MaxMsgsPerSubject: 1,
			MaxBytes:          capped(maxLeaseBytes, 32),
			Discard:           jetstream.DiscardNew,
			AllowDirect:       direct,
			Description:       "one subject per exchange with a Choria server",
		},
		{
			Name:              streamComponents,
			Subjects:          []string{subjectComponent + "*"},
			MaxMsgsPerSubject: 1,
			MaxBytes:          capped(maxComponentBytes, 256),
			AllowDirect:       direct,
			Description:       "one subject per provisioner: its features",
		},
	}
}

// reportConfigs returns streams that acknowledge nothing: a node could direct acknowledgements to a record's subject. A
// single server syncs them late, which allows 20 to 40 % more enrollments (BenchmarkEnroll).
func reportConfigs(single bool, inputBytes int64, capped func(bytes, share int64) int64) []jetstream.StreamConfig {
	all := []jetstream.StreamConfig{
		{
			Name:        streamEvents,
			Subjects:    []string{subjectEvent + ">"},
			MaxBytes:    capped(maxEventBytes, 8),
			Description: "CloudEvents of provisioners",
		},
		{
			Name:        streamAttempts,
			Subjects:    []string{subjectAttempt + ">"},
			MaxBytes:    capped(maxAttemptBytes, 32),
			Description: "refused attempts without valid credentials",
		},
		{
			Name:              streamLifecycle,
			Subjects:          subjectsOfNodes(lifecycleTypes...),
			MaxBytes:          capped(maxLifecycleBytes, 32),
			MaxMsgsPerSubject: maxLifecycle,
			MaxMsgSize:        wire.MaxEventBytes,
			Description:       "CloudEvents of nodes: one subject per node and type",
		},
		// There is no total limit, since it would drop living nodes.
		{
			Name:              streamAlive,
			Subjects:          subjectsOfNodes(aliveType),
			MaxMsgsPerSubject: 1,
			MaxMsgSize:        wire.MaxEventBytes,
			Description:       "one subject per node; when it was last heard of",
		},
		{
			Name:              streamRuns,
			Subjects:          []string{subjectRuns + "*"},
			MaxBytes:          capped(maxRunsBytes, 32),
			MaxMsgsPerSubject: 1,
			MaxMsgSize:        maxRunBytes,
			Description:       "one subject per Puppet agent; its last run",
		},
		{
			Name:        streamInputs,
			Subjects:    []string{subjectInputs},
			MaxBytes:    capped(cmp.Or(inputBytes, DefaultInputBytes), 8),
			Description: "inputs of policy decisions, in batches",
		},
	}
	for i := range all {
		all[i].AllowDirect, all[i].NoAck, all[i].Duplicates = true, true, minDuplicateWindow
		if single {
			all[i].PersistMode = jetstream.AsyncPersistMode
		}
	}
	return all
}

var lifecycleTypes = []string{"startup", "provisioned", "shutdown"}

const aliveType = "alive"

func subjectsOfNodes(types ...string) (subjects []string) {
	for _, t := range types {
		subjects = append(subjects, strings.TrimSuffix(wire.AllNodeEvents, "*")+t)
	}
	return subjects
}
