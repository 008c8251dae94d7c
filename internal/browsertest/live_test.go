package browsertest

import (
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
)

const (
	streamOpen = `document.querySelector("#live")?.dataset.state === "on"`
	chip       = `document.querySelector("h1 .chip")?.innerText`
	buttons    = `[...document.querySelectorAll("#actions a.button")].filter(e => e.checkVisibility()).map(e => e.innerText).join()`
)

// TestANodesPageFollowsItsState has a machine live its life while its page is open: the word
// beside its name, what is on record, who waits and the buttons are those of the moment.
func TestANodesPageFollowsItsState(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	n := f.Node("db9.example.net")
	if code := f.Refused(n); code != wire.CodeApprovalPending {
		t.Fatal(code)
	}
	f.Eventually("it waits", func() bool {
		w, err := f.Daemon().Operator().Waiting(f.Context(), "db9.example.net")
		return err == nil && len(w) == 1
	})
	b, viewer := signIn(t, f, "anna", provisioner.RoleOperator), signIn(t, f, "vera", provisioner.RoleViewer)
	for _, one := range []*tab{b, viewer} {
		one.visit("/nodes/db9.example.net")
		one.eventually("the stream is open", streamOpen)
		one.eventually("it waits", chip+` === "waits" && document.querySelector("#waits").innerText.includes("1 key waits") && `+buttons+` === "" && !document.querySelector("#record").checkVisibility()`)
	}
	evaluate[bool](b, `window.stays = true`)
	if _, err := f.Daemon().Operator().ApproveNode(f.Context(), "db9.example.net", "", 0, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	e := f.Enroll(n)
	b.eventually("it is enrolled", chip+` === "enrolled" && `+buttons+`.startsWith("Let another key have the name,") && document.querySelector("#record").innerText.includes("On record")`)
	b.eventually("nobody waits", `document.querySelector("#waits").innerText === ""`)
	f.Apply(n, e)
	b.eventually("it is provisioned", chip+` === "provisioned" && `+buttons+`.startsWith("Reconfigure,") && document.querySelector("#actions a[href*='/do/revoke?seen=']") !== null`)
	viewer.eventually("it is provisioned", chip+` === "provisioned"`)
	b.sound("while it is provisioned")
	f.Revoke("db9.example.net")
	b.eventually("it is revoked", chip+` === "revoked" && `+buttons+` === "Retire"`)
	f.Clock.Advance(time.Minute)
	f.Retire("db9.example.net")
	b.eventually("it is retired", chip+` === "retired" && `+buttons+` === ""`)
	viewer.eventually("it is retired", chip+` === "retired"`)
	if got := evaluate[string](viewer, buttons); got != "" {
		t.Errorf("who may only look has the buttons %s", got)
	}
	if !evaluate[bool](b, `window.stays`) {
		t.Error("the page was loaded again")
	}
	// The page knows by now whose it is, although nobody had the name when it was opened.
	if _, err := f.Daemon().Operator().AllowNames(f.Context(), "db9.example.net", 0, 0, false, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	f.Enroll(f.Node("db9.example.net"))
	b.eventually("another machine is told of", `document.querySelector("#live-note").innerText.includes("Another machine has this name by now") && `+chip+` === "retired"`)
	b.sound("a node's life")
}

// TestListsFollow has what is on the allow-list, and the first key that is rejected, come to
// pages that are open.
func TestListsFollow(t *testing.T) {
	t.Parallel()
	f := fleet(t, 6)
	allow, queue := signIn(t, f, "anna", provisioner.RoleOperator), signIn(t, f, "ben", provisioner.RoleViewer)
	allow.visit("/allow")
	queue.visit("/approvals")
	allow.eventually("the stream is open", streamOpen)
	queue.eventually("the stream is open", streamOpen)
	if _, err := f.Daemon().Operator().AllowNames(f.Context(), "cache*.example.net", 0, 0, false, testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Daemon().Operator().RejectNode(f.Context(), "db1.example.net", "", testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	allow.eventually("the entry is there", `document.querySelector("#list").innerText.includes("cache*.example.net")`)
	queue.eventually("the rejection is there", `document.querySelector("#rejected")?.innerText.includes("db1.example.net") && document.querySelector("#rejected").checkVisibility()`)
	if _, err := f.Daemon().Operator().ForgetNode(f.Context(), "db1.example.net", "", testbed.Operator()); err != nil {
		t.Fatal(err)
	}
	queue.eventually("and gone", `!document.querySelector("#rejected").checkVisibility()`)
}
