package provisioner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/internal/wire"
)

// answersEvery is how often verdicts of other provisioners are looked for.
const answersEvery = time.Second

// answers are the keys that operators have rejected, as this process knows
// them: every request is compared with them, and a read for each would cost as
// much as the record. Approvals are read from the store when they are needed.
type answers struct {
	store AnswerStore
	log   *slog.Logger
	read  func(holder) // called for the key of every verdict that is read

	seen seen

	looking lookLock
	last    Sequence // guarded by looking

	mu   sync.RWMutex
	kept map[holder]*Answer // guarded by mu: rejections
	fail bool               // guarded by mu: the last look failed, and the log says so
}

func newAnswers(store AnswerStore, log *slog.Logger, read func(holder)) *answers {
	return &answers{store: store, log: log, read: read, looking: newLookLock(), kept: make(map[holder]*Answer)}
}

// look reads what is new in the store.
func (as *answers) look(ctx context.Context) error {
	if err := as.looking.lock(ctx); err != nil {
		return err
	}
	defer as.looking.unlock()
	return as.lookLocked(ctx)
}

// lookLocked is look for callers that hold looking.
func (as *answers) lookLocked(ctx context.Context) error {
	began := time.Now()
	for n := 1; ; n++ {
		if n%lookOneByOne == 0 {
			as.readMany(ctx)
		}
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		a, at, err := as.store.NextAnswer(bounded, as.last)
		cancel()
		if err != nil && !errors.Is(err, ErrUnread) || a == nil {
			as.seen.looked(began, err)
			return err
		}
		as.keep(ctx, a, at, err)
	}
}

// readAll is that of [Revocations]: the store has a verdict about everybody who ever waited.
func (as *answers) readAll(ctx context.Context) {
	if as.looking.lock(ctx) == nil {
		defer as.looking.unlock()
		as.scan(ctx)
	}
}

// readMany is that of [Revocations], as when a rack is approved. The caller holds looking.
func (as *answers) readMany(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	as.scan(ctx)
}

// scan reads what comes after what was read, until something goes wrong. The caller holds
// looking.
func (as *answers) scan(ctx context.Context) {
	_ = as.store.Answers(ctx, as.last, func(a *Answer, at Sequence, unread error) error {
		as.keep(ctx, a, at, unread)
		return nil
	})
}

// keep takes in what comes behind what was read, at its place. The caller holds looking.
func (as *answers) keep(ctx context.Context, a *Answer, at Sequence, unread error) {
	if unread != nil {
		as.log.WarnContext(ctx, "verdict not read, its key is rejected", "node", a.Identity, "err", unread)
	}
	as.apply(a)
	as.read(holder{a.KeyHash, a.Identity})
	as.last = at
}

// put writes a verdict and puts it in force in this process. What came before it is
// read first: a look that came to that later would have it in force until it came to this
// one. And no look comes in between: one that read a later verdict of somebody else would
// be undone here.
func (as *answers) put(ctx context.Context, a *Answer, after Revision) error {
	if err := as.looking.lock(ctx); err != nil {
		return err
	}
	defer as.looking.unlock()
	if err := as.lookLocked(ctx); err != nil {
		return err
	}
	if err := as.store.PutAnswer(ctx, a, after); err != nil {
		return err
	}
	as.apply(a)
	return nil
}

// apply puts a verdict in force in this process.
func (as *answers) apply(a *Answer) {
	as.mu.Lock()
	defer as.mu.Unlock()
	h := holder{a.KeyHash, a.Identity}
	if a.Verdict == VerdictReject {
		as.kept[h] = a
		return
	}
	delete(as.kept, h)
}

// rejected returns the rejection of a key, or nil.
func (as *answers) rejected(h holder) *Answer {
	as.mu.RLock()
	defer as.mu.RUnlock()
	return as.kept[h]
}

// rejectedNamed returns the rejection of the one key of an identity whose hash begins
// with key, which must be given; nil if there is none.
func (as *answers) rejectedNamed(id wire.Identity, key string) *Answer {
	if len(key) < minKeyPrefix {
		return nil
	}
	return as.rejectedOnly(id, key)
}

// rejectedKeys returns the beginnings of the rejected keys of an identity, the
// oldest rejection first.
func (as *answers) rejectedKeys(id wire.Identity) (keys []string) {
	for _, a := range as.list() {
		if a.Identity == id {
			keys = append(keys, cut(a.KeyHash, 2*minKeyPrefix))
		}
	}
	return keys
}

// rejectedOnly returns the rejection of an identity's key whose hash begins with
// key, which may be empty; nil if there is none, or several.
func (as *answers) rejectedOnly(id wire.Identity, key string) *Answer {
	as.mu.RLock()
	defer as.mu.RUnlock()
	var found *Answer
	for _, a := range as.kept { // in no order: whoever approves thousands does not sort thousands for each
		if a.Identity != id || !strings.HasPrefix(a.KeyHash, key) {
			continue
		}
		if found != nil {
			return nil
		}
		found = a
	}
	return found
}

// list returns all rejections, the oldest first.
func (as *answers) list() []*Answer {
	as.mu.RLock()
	defer as.mu.RUnlock()
	list := make([]*Answer, 0, len(as.kept))
	for _, a := range as.kept {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *Answer) int {
		if c := a.At.Compare(b.At); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Rejected returns the keys that operators have rejected, the oldest first.
func (p *Provisioner) Rejected() []*Answer { return p.answers.list() }

// followAnswers looks for verdicts and allow-list entries of other provisioners. While the store does
// not answer, those that are known stay in force, and nobody new gets in anyway.
func (p *Provisioner) followAnswers(ctx context.Context) {
	err := errors.Join(p.answers.look(ctx), p.allowances.look(ctx))
	p.watchAllowsAll(ctx)
	if ctx.Err() != nil {
		return
	}
	p.answers.mu.Lock()
	said := p.answers.fail
	p.answers.fail = err != nil
	p.answers.mu.Unlock()
	if err != nil && !said {
		p.cfg.Log.WarnContext(ctx, "rejections and allow-list of other provisioners not read, those before stay in force", "err", err)
	}
}

// checkRejected refuses a key that an operator has rejected. Connections to the
// fleet are not its business: `muster node revoke` is for those.
func (p *Provisioner) checkRejected(a *attempt) error {
	if a.csr == nil {
		return nil
	}
	by := p.answers.rejected(holder{a.csr.KeyHash, a.identity})
	if by == nil {
		return nil
	}
	return refuse(string(a.identity), wire.CodeRejected, fmt.Errorf("rejected %s", by.rejection()))
}

// rejection says who has rejected a key, when and why.
func (a *Answer) rejection() string {
	why := a.Why
	if why != "" {
		why = ": " + why
	}
	return fmt.Sprintf("by %s at %s%s", a.By, a.At.Format(time.RFC3339), why)
}
