package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// subjectRestore is where a restore says that it has begun, and that it is over.
const subjectRestore = "muster.entry.restore"

// ErrNotEmpty means that a restore found something where it wants to write.
var ErrNotEmpty = errors.New("store is not empty")

// ErrHalfRestored means that a restore was cut short: what is in the store is
// not what the backup has. Restore once more; nothing may be served until then.
var ErrHalfRestored = errors.New("store was not restored to its end")

// restore is the state of a restore in the store.
type restore struct {
	Backup string    `json:"backup"`
	At     time.Time `json:"at"`
	Done   bool      `json:"done"`

	// LostAt is when a restore, this one or one before, had not all that came
	// after its backup; zero if none.
	LostAt time.Time `json:"lost_at,omitzero"`
}

// An Import fills an empty store with what a backup has. Nothing serves from it
// until Done has returned nil. It is for one goroutine.
//
// Every step may be the last. The first write says that a restore has begun, and
// [Open] refuses a store that says so. The next restore begins by throwing away
// what that one has left. The last write says that it is over.
type Import struct {
	cfg   Config
	js    jetstream.JetStream
	begun restore

	installation []byte // held back to the end
	clock        *provisioner.ClockMark
	last         map[string]uint64                         // sequence that a stream has come to
	filler       message                                   // the newest revocation, to keep places
	revoked      map[string]bool                           // ids of revocations
	decided      map[wire.Identity]time.Time               // when the last of them about a name was
	signers      map[jwt.SignerID]*provisioner.SignerEntry // the newest of each
	operators    map[string]*provisioner.OperatorEntry     // the newest of each name
	allowances   map[wire.Pattern]*provisioner.Allowance   // the newest of each pattern
	watched      map[wire.Identity]*provisioner.Record
	owned        map[wire.Identity]time.Time // since when who has the name has it, of names of WatchOwner
	acks         []jetstream.PubAckFuture    // oldest first, of what is not known to be stored
}

// NewImport prepares an empty store for the backup with this id. It returns
// [ErrNotEmpty] if anything of ours is there that a restore has not begun. The
// configuration's CAFingerprint is not used.
func NewImport(ctx context.Context, cfg Config, backup string) (*Import, error) {
	cfg = cfg.complete()
	js, err := cfg.jetStream()
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	i := &Import{
		cfg: cfg, js: js, begun: restore{Backup: backup, At: cfg.Now().UTC().Truncate(time.Second)}, last: make(map[string]uint64),
		revoked: make(map[string]bool), decided: make(map[wire.Identity]time.Time), signers: make(map[jwt.SignerID]*provisioner.SignerEntry), operators: make(map[string]*provisioner.OperatorEntry),
		allowances: make(map[wire.Pattern]*provisioner.Allowance),
	}
	if err := answers(ctx, js); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	if err := i.clear(ctx); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	// The stream that says so comes first, so that no other is there without it.
	all := streams(cfg.Replicas, cfg.Capacity, cfg.InputBytes)
	slices.SortStableFunc(all, func(a, b jetstream.StreamConfig) int {
		return boolToInt(b.Name == streamEntries) - boolToInt(a.Name == streamEntries)
	})
	for _, c := range all {
		if err := i.create(ctx, c); err != nil {
			return nil, fmt.Errorf("restore: stream %s: %w", c.Name, full(err))
		}
		if c.Name != streamEntries {
			continue
		}
		// As the first message of all: a provisioner that opens the store at the
		// same time either reads this after it has bound it, or has bound it
		// before, and then this fails.
		if err := i.say(ctx, i.begun, 0); err != nil {
			return nil, fmt.Errorf("restore: %w", err)
		}
	}
	return i, nil
}

// A server answers that it has deleted a stream before the last of its files is
// gone, and then may fail to make one of the same name: seen in 18 of 150 runs of a test
// on a busy machine, and in none since. Both chosen.
const (
	createTries = 20
	createPause = 100 * time.Millisecond
)

// createFailed is the error code of a server that could not make a stream's files
// (JSStreamCreateErrF of nats-server).
const createFailed jetstream.ErrorCode = 10049

// create makes a stream, after one of its name was deleted perhaps.
func (i *Import) create(ctx context.Context, c jetstream.StreamConfig) error {
	for tries := 1; ; tries++ {
		_, err := i.js.CreateStream(ctx, c)
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != createFailed || tries == createTries {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(createPause):
		}
	}
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// clear takes away what a restore that was cut short has left, and what has
// never been written to.
func (i *Import) clear(ctx context.Context) error {
	var found []string
	messages := uint64(0)
	for _, c := range streams(i.cfg.Replicas, i.cfg.Capacity, i.cfg.InputBytes) {
		stream, err := i.js.Stream(ctx, c.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", c.Name, err)
		}
		found = append(found, c.Name)
		messages += stream.CachedInfo().State.Msgs
	}
	if messages > 0 {
		r, err := lastRestore(ctx, i.js)
		if err != nil {
			return err
		}
		if r == nil || r.Done {
			return fmt.Errorf("%w: it has %d messages in %s", ErrNotEmpty, messages, strings.Join(found, ", "))
		}
	}
	// The stream that says so goes last.
	slices.SortStableFunc(found, func(a, b string) int { return boolToInt(a == streamEntries) - boolToInt(b == streamEntries) })
	for _, name := range found {
		if err := i.js.DeleteStream(ctx, name); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

// lastRestore returns what the newest restore has said, nil if there was none.
func lastRestore(ctx context.Context, js jetstream.JetStream) (*restore, error) {
	m, err := lastEntry(ctx, js, subjectRestore)
	if errors.Is(err, jetstream.ErrStreamNotFound) || errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read restore: %w", err)
	}
	var r restore
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return nil, fmt.Errorf("read restore: %w", err)
	}
	return &r, nil
}

// lastEntry returns the last entry of the subject. Nobody knows yet whether the
// streams are a cluster's, so it is asked for until there is an answer.
func lastEntry(ctx context.Context, js jetstream.JetStream, subject string) (*jetstream.RawStreamMsg, error) {
	return insist(ctx, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		stream, err := js.Stream(ctx, streamEntries)
		if err != nil {
			return nil, err
		}
		return stream.GetLastMsgForSubject(ctx, subject)
	})
}

// checkRestored returns what the newest restore has said, and [ErrHalfRestored]
// if it says that it is not over.
func checkRestored(ctx context.Context, js jetstream.JetStream) (restore, error) {
	r, err := lastRestore(ctx, js)
	if err != nil || r == nil {
		return restore{}, err
	}
	if !r.Done {
		return *r, fmt.Errorf("%w: that of backup %s, begun at %s: restore once more", ErrHalfRestored, r.Backup, r.At.Format(time.RFC3339))
	}
	return *r, nil
}

// say writes how far the restore is, if nobody else has written an entry: after
// is the sequence of our last one.
func (i *Import) say(ctx context.Context, r restore, after uint64) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = i.js.Publish(ctx, subjectRestore, b, jetstream.WithExpectLastSequence(after), jetstream.WithRetryAttempts(0))
	if conflict(err) {
		return fmt.Errorf("%w: somebody else writes to stream %s: stop all provisioners", ErrNotEmpty, streamEntries)
	}
	if err != nil {
		return fmt.Errorf("stream %s: %w", streamEntries, full(err))
	}
	i.last[streamEntries] = after + 1
	return nil
}

// Message takes the next message of the backup; see [CheckKept] for the errors.
// The data is kept until the write is acknowledged.
//
// Grants and approvals are left out: one that was spent after the backup would
// be good again, and none lives longer than a few days. That an approval has lifted a
// rejection stays. The rest is written as it is. Revocations
// keep their places, which records and CRLs name: a place that has none any more
// gets the entry before it once again, which says nothing new.
func (i *Import) Message(ctx context.Context, stream string, sequence uint64, subject string, data []byte) error {
	if err := CheckKept(stream, sequence, subject, data); err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(subject, subjectGrant), subject == subjectProbe:
		return nil
	case strings.HasPrefix(subject, subjectAnswer):
		// An approval that was spent after the backup would be good again. What
		// keeps somebody out stays, also if it was lifted since.
		var a provisioner.Answer
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		if a.Verdict == provisioner.VerdictApprove {
			// Without a word of it a rejection before would be the newest again.
			a.Verdict, a.ExpiresAt = provisioner.VerdictNone, time.Time{}
			var err error
			if data, err = json.Marshal(&a); err != nil {
				return err
			}
		}
	case strings.HasPrefix(subject, subjectAllowance):
		var a provisioner.Allowance
		if err := json.Unmarshal(data, &a); err != nil {
			return err
		}
		i.allowances[a.Pattern] = &a
	case subject == subjectRestore:
		var r restore
		err := json.Unmarshal(data, &r)
		i.begun.LostAt = r.LostAt
		return err
	case subject == subjectInstallation:
		i.installation = slices.Clone(data)
		return nil
	case subject == subjectClock:
		return json.Unmarshal(data, &i.clock)
	case strings.HasPrefix(subject, subjectSigner):
		var e provisioner.SignerEntry
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		i.signers[e.ID] = &e
	case strings.HasPrefix(subject, subjectOperator):
		var e provisioner.OperatorEntry
		if err := json.Unmarshal(data, &e); err != nil {
			return err
		}
		i.operators[e.Name] = &e
	case stream == streamNodes:
		i.look(subject, data)
	case stream == streamRevocations:
		return i.revocation(ctx, sequence, subject, data)
	}
	return i.publish(ctx, stream, subject, data)
}

// Watch has the newest record of an identity kept for [Import.Record].
func (i *Import) Watch(id wire.Identity) {
	if i.watched == nil {
		i.watched = make(map[wire.Identity]*provisioner.Record)
	}
	i.watched[id] = nil
}

// Record returns the newest record so far of an identity that is watched, nil if
// it has none.
func (i *Import) Record(id wire.Identity) *provisioner.Record { return i.watched[id] }

// WatchOwner has [Import.Overtaken] know since when who has the name has it.
func (i *Import) WatchOwner(id wire.Identity) {
	if i.owned == nil {
		i.owned = make(map[wire.Identity]time.Time)
	}
	i.owned[id] = time.Time{}
}

// look keeps what is to be known of a record. It was checked before.
func (i *Import) look(subject string, data []byte) {
	id, err := wire.ParseSubjectToken(strings.TrimPrefix(subject, subjectNode))
	if err != nil {
		return
	}
	_, watched := i.watched[id]
	_, owned := i.owned[id]
	if !watched && !owned {
		return
	}
	var r provisioner.Record
	if err := json.Unmarshal(data, &r); err != nil {
		return
	}
	if watched {
		i.watched[id] = &r
	}
	if owned {
		i.owned[id] = r.Owned()
	}
}

// revocation writes an entry to its place.
func (i *Import) revocation(ctx context.Context, sequence uint64, subject string, data []byte) error {
	var r provisioner.Revocation
	if err := json.Unmarshal(data, &r); err != nil {
		return err
	}
	i.note(&r)
	m := message{subject: subject, data: slices.Clone(data)}
	if i.filler.data == nil {
		i.filler = m
	}
	for i.last[streamRevocations] < sequence-1 {
		if err := i.publish(ctx, streamRevocations, i.filler.subject, i.filler.data); err != nil {
			return err
		}
	}
	i.filler = m
	return i.publish(ctx, streamRevocations, subject, data)
}

// publish writes without waiting for the acknowledgement, unless many are
// missing: the store takes messages in the order in which they were sent.
func (i *Import) publish(ctx context.Context, stream, subject string, data []byte) error {
	f, err := i.js.PublishMsgAsync(&nats.Msg{Subject: subject, Data: slices.Clone(data)}, jetstream.WithRetryAttempts(0))
	if err != nil {
		return fmt.Errorf("stream %s: %w", stream, err)
	}
	i.last[stream]++
	i.acks = append(i.acks, f)
	if len(i.acks) < maxPending/2 {
		return nil
	}
	return i.await(ctx, maxPending/4)
}

// acknowledgedIn is how long one acknowledgement may take; chosen, far above the
// 4 to 9 s in which a cluster elects a leader (measured).
const acknowledgedIn = time.Minute

// await waits until only so many acknowledgements are missing.
func (i *Import) await(ctx context.Context, left int) error {
	// A leader that is gone acknowledges nothing, and nobody does in its place.
	patience := time.NewTimer(acknowledgedIn)
	defer patience.Stop()
	for len(i.acks) > left {
		patience.Reset(acknowledgedIn)
		select {
		case <-i.acks[0].Ok():
		case err := <-i.acks[0].Err():
			return fmt.Errorf("%s: %w", i.acks[0].Msg().Subject, full(err))
		case <-patience.C:
			return fmt.Errorf("%s: no acknowledgement for %s: restore once more", i.acks[0].Msg().Subject, acknowledgedIn)
		case <-ctx.Done():
			return fmt.Errorf("no acknowledgement: %w", ctx.Err())
		}
		i.acks = i.acks[1:]
	}
	return nil
}

// Finish writes what is left, and sees that all of it is there. seen is the
// newest time that anybody is known to have seen, which becomes the clock's
// mark: by an older one, tokens and certificates could live again. Nobody opens
// the store before Done.
func (i *Import) Finish(ctx context.Context, seen time.Time) error {
	if i.installation == nil {
		return errors.New("restore: the backup has no installation")
	}
	mark := i.clock
	if mark == nil {
		mark = &provisioner.ClockMark{}
	}
	if seen.After(mark.Time) {
		mark.Time = seen.UTC().Truncate(time.Second)
	}
	b, err := json.Marshal(mark)
	if err != nil {
		return err
	}
	err = errors.Join(i.publish(ctx, streamEntries, subjectClock, b), i.publish(ctx, streamEntries, subjectInstallation, i.installation), i.await(ctx, 0))
	if err == nil {
		err = i.checkPlaces(ctx)
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// Done says that the restore is over: the store can be opened from then on.
// Finish has returned nil before. lost says that claims have other places than
// journals say, or that some may be gone: see [Store.LostAt]. After an error it
// may be said or not; the next restore finds out.
func (i *Import) Done(ctx context.Context, lost bool) error {
	done := i.begun
	if done.Done = true; lost {
		done.LostAt = done.At
	}
	err := i.checkPlaces(ctx)
	if err == nil {
		err = i.say(ctx, done, i.last[streamEntries])
	}
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	return nil
}

// checkPlaces sees that the streams have what was written to them and nothing
// else: so every revocation and every claim has the place that it is to have.
func (i *Import) checkPlaces(ctx context.Context) error {
	for _, name := range kept {
		stream, err := i.js.Stream(ctx, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		if got, want := stream.CachedInfo().State.LastSeq, i.last[name]; got != want {
			return fmt.Errorf("stream %s: ends at sequence %d, want %d: somebody else writes to this store; stop all provisioners", name, got, want)
		}
	}
	return nil
}

// note takes in a revocation that is written. One that is there twice counts where it comes first.
func (i *Import) note(r *provisioner.Revocation) {
	if i.revoked[r.ID] {
		return
	}
	i.revoked[r.ID] = true
	if r.Node != "" {
		i.decided[r.Node] = r.At
	}
}

// Overtaken reports whether r is a retirement that is not to be appended: it is not there,
// and older than what is about its name, or than since when who has the name has it (see
// [Import.WatchOwner]). It never got into the store, and would lift a revocation that came after it, or put that
// machine out. A provisioner that starts leaves it out likewise.
func (i *Import) Overtaken(r *provisioner.Revocation) bool {
	return !i.revoked[r.ID] && r.Kind == provisioner.RetiredNode && (r.At.Before(i.decided[r.Node]) || r.At.Before(i.owned[r.Node]))
}

// AppendRevocation adds a revocation of the journal that the backup does not
// have.
func (i *Import) AppendRevocation(ctx context.Context, r *provisioner.Revocation) error {
	if i.revoked[r.ID] {
		return nil
	}
	i.note(r)
	return i.append(ctx, streamRevocations, revocationSubject(r), r)
}

// Revocations returns how many different revocations there are so far.
func (i *Import) Revocations() int { return len(i.revoked) }

// AppendClaims adds an entry of the journal that came after those of the backup.
func (i *Import) AppendClaims(ctx context.Context, tid jwt.TokenID, e *provisioner.ClaimEntry) error {
	return i.append(ctx, streamClaims, subjectClaims+string(tid), e)
}

// AppendSigner adds an entry of the journal about a signer. Of several about one
// signer, the last one counts.
func (i *Import) AppendSigner(ctx context.Context, e *provisioner.SignerEntry) error {
	i.signers[e.ID] = e
	return i.append(ctx, streamEntries, subjectSigner+e.LogKey(), e)
}

// AppendOperator adds an entry of the journal about an operator. Of several about
// one name, the last one counts.
func (i *Import) AppendOperator(ctx context.Context, e *provisioner.OperatorEntry) error {
	i.operators[e.Name] = e
	return i.append(ctx, streamEntries, subjectOperator+e.LogKey(), e)
}

// Operator returns the newest entry so far about an operator, nil if there is
// none.
func (i *Import) Operator(name string) *provisioner.OperatorEntry { return i.operators[name] }

// AppendAllowance adds an entry of the journal about the allow-list. Of several about one
// pattern, the last one counts.
func (i *Import) AppendAllowance(ctx context.Context, a *provisioner.Allowance) error {
	i.allowances[a.Pattern] = a
	return i.append(ctx, streamEntries, subjectAllowance+a.LogKey(), a)
}

// Allowance returns the newest entry so far about a pattern, nil if there is none.
func (i *Import) Allowance(p wire.Pattern) *provisioner.Allowance { return i.allowances[p] }

// Freeze freezes the limited tokens that were signed before.
func (i *Import) Freeze(ctx context.Context, f *provisioner.Freeze) error {
	return i.append(ctx, streamEntries, subjectFreeze+provisioner.FreezeKey, f)
}

// Claims returns the revision of the newest entry of all logs of claims so far.
func (i *Import) Claims() provisioner.Revision { return provisioner.Revision(i.last[streamClaims]) }

// Signer returns the newest entry so far about a signer, nil if there is none.
func (i *Import) Signer(id jwt.SignerID) *provisioner.SignerEntry { return i.signers[id] }

func (i *Import) append(ctx context.Context, stream, subject string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return i.publish(ctx, stream, subject, b)
}
