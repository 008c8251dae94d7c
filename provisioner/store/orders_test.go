package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
)

// An orderRead is an entry of operators as it was read.
type orderRead[E any] struct {
	Entry  *E
	At     provisioner.Sequence
	Unread bool
}

// sameOrders compares what is read all at once with what is asked for one by one, from each
// place on, and stops in between.
func sameOrders[E any](t *testing.T, want int, next func(context.Context, provisioner.Sequence) (*E, provisioner.Sequence, error),
	all func(context.Context, provisioner.Sequence, func(*E, provisioner.Sequence, error) error) error,
) {
	t.Helper()
	read := func(e *E, at provisioner.Sequence, err error) orderRead[E] {
		if err != nil && !errors.Is(err, provisioner.ErrUnread) {
			t.Error(err)
		}
		return orderRead[E]{e, at, err != nil}
	}
	var asked []orderRead[E]
	for after := provisioner.Sequence(0); ; {
		e, at, err := next(t.Context(), after)
		if e == nil {
			break
		}
		asked = append(asked, read(e, at, err))
		after = at
	}
	if len(asked) != want {
		t.Fatalf("%d entries asked for, want %d", len(asked), want)
	}
	for n := range asked {
		after := asked[n].At - 1 // of this one, which may be that of another kind
		var got []orderRead[E]
		err := all(t.Context(), after, func(e *E, at provisioner.Sequence, unread error) error {
			got = append(got, read(e, at, unread))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(asked[n:], got); diff != "" {
			t.Errorf("all after %d (-asked for +read at once):\n%s", after, diff)
		}
	}
	enough, calls := errors.New("enough"), 0
	if err := all(t.Context(), 0, func(*E, provisioner.Sequence, error) error { calls++; return enough }); !errors.Is(err, enough) || calls != 1 {
		t.Errorf("an error of the first of them: %v after %d, want %v", err, calls, enough)
	}
}

// TestOrdersAreReadAtOnceAsOneByOne writes verdicts, entries of the allow-list and pauses by
// turns, with some among them that another version has written.
func TestOrdersAreReadAtOnceAsOneByOne(t *testing.T) {
	t.Parallel()
	st, s := newStore(t)
	cause := provisioner.Cause{By: "operator"}
	toCome := func(subject string) {
		t.Helper()
		if _, err := s.js.Publish(s.ctx, "muster.entry."+subject, []byte(`{"schema":99}`)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		key := strings.Repeat(fmt.Sprint(i), 64)
		a := &provisioner.Answer{Schema: provisioner.AnswerSchema, ID: wire.NewID(), Identity: web1, KeyHash: key, Verdict: provisioner.VerdictReject, Cause: cause}
		if err := st.PutAnswer(s.ctx, a, provisioner.AnyRevision); err != nil {
			t.Fatal(err)
		}
		toCome("verdict." + web1.SubjectToken() + "." + key)
		l := &provisioner.Allowance{Schema: provisioner.AllowanceSchema, ID: "1", Pattern: wire.Pattern(fmt.Sprintf("web%d.example.net", i)), Cause: cause}
		if err := st.PutAllowance(s.ctx, l, 0); err != nil {
			t.Fatal(err)
		}
		toCome("allow." + provisioner.AllowanceID(l.Pattern))
		p := &provisioner.Pause{Schema: provisioner.PauseSchema, Site: jwt.Site(fmt.Sprint("site", i)), Cause: cause}
		if err := st.PutPause(s.ctx, p, provisioner.AnyRevision); err != nil {
			t.Fatal(err)
		}
		toCome(fmt.Sprintf("pause.site-%x", p.Site))
	}
	sameOrders(t, 6, st.NextAnswer, st.Answers)
	sameOrders(t, 6, st.NextAllowance, st.Allowances)
	sameOrders(t, 6, st.NextPause, st.Pauses)
}
