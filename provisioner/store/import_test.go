package store_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/backup"
	"muster/provisioner/store"
)

// TestAStoreIsOpenOnlyOnceItIsRestored tries to open a store between any two
// steps of a restore that nobody cuts short.
func TestAStoreIsOpenOnlyOnceItIsRestored(t *testing.T) {
	t.Parallel()
	st, s := filled(t)
	out := export(t, s, st)
	into, stop := start(t, t.TempDir())
	defer stop()
	refused := func(step string) {
		t.Helper()
		if _, err := store.Open(into.ctx, store.Config{Conn: into.conn, CAFingerprint: ours}); !errors.Is(err, store.ErrHalfRestored) {
			t.Fatalf("opened when %s: %v, want ErrHalfRestored", step, err)
		}
	}
	i := begin(t, into)
	refused("begun")
	write(t, into, i, out.messages)
	refused("written")
	if err := i.Finish(into.ctx, time.Time{}); err != nil {
		t.Fatal(err)
	}
	refused("finished")
	if err := i.Done(into.ctx, false); err != nil {
		t.Fatal(err)
	}
	into.open(t, ours)
}

// TestAnApprovalThatLiftedARejection restores both: the key is neither let in nor kept out.
func TestAnApprovalThatLiftedARejection(t *testing.T) {
	t.Parallel()
	st, s := filled(t)
	say := func(id wire.Identity, verdicts ...provisioner.Verdict) {
		t.Helper()
		after := provisioner.Revision(0)
		for _, v := range verdicts {
			a := &provisioner.Answer{Schema: provisioner.AnswerSchema, ID: wire.NewID(), Identity: id, KeyHash: strings.Repeat("ab", 32), Verdict: v, At: time.Now(), Cause: provisioner.Cause{By: "me"}}
			var err error
			if after, err = st.Logs().Answers.Put(s.ctx, a.LogKey(), a, after); err != nil {
				t.Fatal(err)
			}
		}
	}
	say(web1, provisioner.VerdictReject, provisioner.VerdictApprove)
	say(web2, provisioner.VerdictApprove, provisioner.VerdictReject)
	out := export(t, s, st)
	into, stop := start(t, t.TempDir())
	defer stop()
	i := begin(t, into)
	write(t, into, i, out.messages)
	if err := errors.Join(i.Finish(into.ctx, time.Now()), i.Done(into.ctx, false)); err != nil {
		t.Fatal(err)
	}
	restored := into.open(t, ours)
	for id, want := range map[wire.Identity]provisioner.Verdict{web1: provisioner.VerdictNone, web2: provisioner.VerdictReject} {
		if a, _ := restored.Logs().Answers.Of(id, strings.Repeat("ab", 32)); a == nil || a.Verdict != want || !a.ExpiresAt.IsZero() {
			t.Errorf("about %s: %+v; want %s", id, a, want)
		}
	}
}

// TestARetirementThatARestoreLeavesOut is asked about what was decided about the name since.
func TestARetirementThatARestoreLeavesOut(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	entry := func(id string, kind provisioner.RevocationKind, minutes int) *provisioner.Revocation {
		return revocation(id, func(r *provisioner.Revocation) {
			r.Kind, r.At = kind, noon.Add(time.Duration(minutes)*time.Minute)
			if kind == provisioner.RetiredNode {
				r.Keys = nil
			}
		})
	}
	first, second := entry("first", provisioner.RevokedNode, 1), entry("second", provisioner.RevokedNode, 3)
	for name, tt := range map[string]struct {
		log   []*provisioner.Revocation
		again bool // whether the first of it comes once more, at the end
		owned int  // since when who has the name has it, in minutes; 0 without a record
		want  bool
	}{
		"nothing there":                 {nil, false, 0, false},
		"revoked before":                {[]*provisioner.Revocation{first}, false, 0, false},
		"revoked since":                 {[]*provisioner.Revocation{second}, false, 0, true},
		"known":                         {[]*provisioner.Revocation{entry("retired", provisioner.RetiredNode, 2), second}, false, 0, false},
		"one of before is there again":  {[]*provisioner.Revocation{first, second}, true, 0, true}, // and counts where it comes first
		"given to another key since":    {[]*provisioner.Revocation{first}, false, 3, true},
		"of who has it in that second":  {nil, false, 2, false},
		"of who has had it for a while": {nil, false, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, s := newStore(t)
			if tt.owned > 0 {
				r := record(web1, "a1")
				r.OwnedSince = noon.Add(time.Duration(tt.owned) * time.Minute)
				put(t, s, st, r, 0)
			}
			for _, e := range tt.log {
				if _, err := st.AppendRevocation(s.ctx, e); err != nil {
					t.Fatal(err)
				}
			}
			out := export(t, s, st)
			into, stop := start(t, t.TempDir())
			defer stop()
			i := begin(t, into)
			i.WatchOwner(web1)
			if last := len(out.messages) - 1; tt.again { // what was appended again long after
				m := out.messages[slices.IndexFunc(out.messages, func(m backup.Message) bool { return m.Stream == out.messages[last].Stream })]
				m.Sequence = out.messages[last].Sequence + 1
				out.messages = append(out.messages, m)
			}
			write(t, into, i, out.messages)
			if got := i.Overtaken(entry("retired", provisioner.RetiredNode, 2)); got != tt.want {
				t.Errorf("overtaken is %t, want %t", got, tt.want)
			}
		})
	}
}

// TestARestoreThatIsNotAlone is not over: somebody has written to the store
// meanwhile.
func TestARestoreThatIsNotAlone(t *testing.T) {
	t.Parallel()
	st, s := filled(t)
	out := export(t, s, st)
	for _, subject := range []string{"muster.node.stranger", "muster.claims.stranger", "muster.entry.stranger", "muster.revocation.node.stranger"} {
		into, stop := start(t, t.TempDir())
		i := begin(t, into)
		write(t, into, i, out.messages)
		if err := i.Finish(into.ctx, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if _, err := into.js.Publish(into.ctx, subject, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if err := i.Done(into.ctx, false); err == nil || !strings.Contains(err.Error(), "somebody else writes") {
			t.Errorf("%s: %v", subject, err)
		}
		write(t, into, begin(t, into), out.messages) // and it can be begun again
		stop()
	}
}

// TestALossIsRemembered restores with losses, and then a backup of that without.
func TestALossIsRemembered(t *testing.T) {
	t.Parallel()
	st, s := filled(t)
	if !st.LostAt().IsZero() {
		t.Errorf("lost at %v in a store that was never restored", st.LostAt())
	}
	var first time.Time
	for _, lost := range []bool{true, false} {
		out := export(t, s, st)
		into, stop := start(t, t.TempDir())
		defer stop()
		i := begin(t, into)
		write(t, into, i, out.messages)
		if err := errors.Join(i.Finish(into.ctx, time.Time{}), i.Done(into.ctx, lost)); err != nil {
			t.Fatal(err)
		}
		st, s = into.open(t, ours), into
		if lost {
			first = st.LostAt()
		}
		if first.IsZero() || !st.LostAt().Equal(first) {
			t.Errorf("lost at %v, want %v", st.LostAt(), first)
		}
	}
}
