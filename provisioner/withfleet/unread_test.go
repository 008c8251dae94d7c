package provisioner_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

// TestWhatAnotherVersionSaysLetsNobodyIn has entries of a version to come among those that
// keep somebody out. What each of them is about stays out, whatever it says, all behind it
// is read, and what this version says anew counts.
func TestWhatAnotherVersionSaysLetsNobodyIn(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{DefaultPolicy: true})
	p := f.Daemon().Operator()
	conn, err := f.Daemon().Connect("a version to come")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	toCome := func(subject string) {
		t.Helper()
		if _, err := js.Publish(f.Context(), "muster.entry."+subject, []byte(`{"schema":99,"verdict":"approve","resumed":true}`)); err != nil {
			t.Fatal(err)
		}
	}
	names := 0
	// newcomers waits until machines that nobody has seen are answered with a code.
	newcomers := func(what string, want wire.Code, prefix string) {
		t.Helper()
		f.Eventually(what, func() bool {
			names++
			return codeAt(f, p, f.Node(fmt.Sprintf("%s%d.example.net", prefix, names))) == want
		})
	}

	if _, err := p.AllowNames(f.Context(), "db*.example.net", 0, 0, false, operator); err != nil {
		t.Fatal(err)
	}
	newcomers("the list lets its names in", "", "db")
	toCome("allow." + provisioner.AllowanceID("db*.example.net"))
	newcomers("an entry that cannot be read lets nobody in", wire.CodeApprovalPending, "db")
	if _, err := p.AllowNames(f.Context(), "db*.example.net", 0, 0, false, operator); err != nil {
		t.Fatal(err)
	}
	newcomers("until it is said anew", "", "db")
	toCome("allow." + provisioner.AllowanceID("db*.example.net"))
	if _, err := p.AllowNames(f.Context(), "db*.example.net", 0, 3, false, operator); !errors.Is(err, provisioner.ErrState) {
		t.Errorf("an entry of which nobody knows who has used it is limited: %v", err)
	}
	toCome("allow." + provisioner.AllowanceID("db*.example.net"))
	if err := p.DisallowNames(f.Context(), "db*.example.net", operator); err != nil {
		t.Fatal(err)
	}
	newcomers("or taken away", wire.CodeApprovalPending, "db")

	unread, later := f.Node(web1), f.Node("web2.example.net")
	if c := codeAt(f, p, unread); c != wire.CodeApprovalPending {
		t.Fatalf("before: %q", c)
	}
	if c := codeAt(f, p, later); c != wire.CodeApprovalPending {
		t.Fatalf("before: %q", c)
	}
	toCome("verdict." + wire.Identity(web1).SubjectToken() + "." + keyHash(t, unread))
	other := another(t, f, nil)
	f.Eventually("another provisioner rejects who waits", func() bool {
		_, err := other.RejectNode(f.Context(), wire.Identity(later.Identity), "", operator)
		return err == nil
	})
	f.Eventually("a verdict that cannot be read rejects its key", func() bool { return codeAt(f, p, unread) == wire.CodeRejected })
	f.Eventually("a verdict behind it is read", func() bool { return codeAt(f, p, later) == wire.CodeRejected })

	if _, err := p.AllowNames(f.Context(), "www*.example.net", 0, 0, false, operator); err != nil {
		t.Fatal(err)
	}
	toCome("pause.all")
	newcomers("a pause that cannot be read is one", wire.CodePaused, "www")
	if err := p.Resume(f.Context(), "", operator); err != nil {
		t.Fatal(err)
	}
	newcomers("until it is over", "", "www")
}
