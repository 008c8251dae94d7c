package browsertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"muster/internal/daemon"
	"muster/internal/simnode"
	"muster/internal/testbed"
	"muster/internal/testproc"
	"muster/internal/wire"
	"muster/jwt"
	"muster/provisioner"
	nodes "muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/orders"
	"muster/provisioner/trust"
)

// A newcomer uses the console by what its pages show, and counts.
type newcomer struct {
	*tab

	clicks, pages int
}

// finding defines seek, which returns the first shown element with these words, or that begins or ends with them, in the
// smallest part of the page that has the words near.
const finding = `const said = e => (e.tagName === "INPUT" || e.tagName === "SELECT" ? [...e.labels].map(l => l.innerText).join(" ") || e.ariaLabel || "" : e.innerText).replace(/\s+/g, " ").trim();
const seek = (kinds, words, near) => {
	const parts = near ? [...document.querySelectorAll("tr, li, dt, section")].filter(e => e.checkVisibility() && e.innerText.includes(near)) : [document];
	parts.sort((a, b) => near ? a.innerText.length - b.innerText.length : 0);
	for (const fits of [s => s === words, s => s.startsWith(words), s => s.endsWith(words)])
		for (const part of parts)
			for (const e of part.querySelectorAll(kinds)) if (e.checkVisibility() && fits(said(e))) return e;
};
`

// on acts on an element once it is there.
func (n *newcomer) on(kinds, words, near, act string) {
	n.t.Helper()
	args, err := json.Marshal([]string{kinds, words, near})
	if err != nil {
		n.t.Fatal(err)
	}
	n.eventually(fmt.Sprintf("%q near %q is there", words, near), `document.readyState === "complete" && (() => {`+finding+
		`const e = seek(...`+string(args)+`); if (e) {`+act+`} return e })()`)
	n.clicks++
}

// follow clicks a link or button, and waits for the next page.
func (n *newcomer) follow(words string, near ...string) {
	n.t.Helper()
	n.on("a[href], button", words, strings.Join(near, ""), `window.former = true; e.click()`)
	n.arrives()
}

func (n *newcomer) arrives() {
	n.t.Helper()
	n.eventually("the next page", `!window.former && document.readyState === "complete" && document.querySelector("main")`)
	n.pages++
}

// choose takes an option of a list: two clicks.
func (n *newcomer) choose(list, option string) {
	n.t.Helper()
	n.on("select", list, "", fmt.Sprintf(`e.value = [...e.options].find(o => o.text === %q).value`, option))
	n.clicks++
}

// write writes into a field, and presses Enter.
func (n *newcomer) write(field, text string) {
	n.t.Helper()
	n.on("input", field, "", `window.former = true; e.focus(); e.select()`)
	n.do(chromedp.KeyEvent(text + kb.Enter))
	n.arrives()
}

// because gives a reason, and confirms.
func (n *newcomer) because(reason, button string) {
	n.t.Helper()
	n.on("input", "Reason", "", `e.focus()`)
	n.do(chromedp.KeyEvent(reason))
	n.follow(button, "Reason")
}

// shows takes a picture if they are wanted.
func (n *newcomer) shows(name string) {
	n.t.Helper()
	if os.Getenv("MUSTER_SCREENSHOTS") != "" {
		n.picture(name)
	}
}

// sees waits for texts on the page, in this order.
func (n *newcomer) sees(texts ...string) {
	n.t.Helper()
	list, err := json.Marshal(texts)
	if err != nil {
		n.t.Fatal(err)
	}
	n.eventually(fmt.Sprintf("it says %q", texts), `(() => { let at = 0; const all = document.querySelector("main").innerText;
		return `+string(list)+`.every(t => (at = all.indexOf(t, at) + 1) > 0) })()`)
}

const issuer = "https://login.example.net"

// told is a fleet of which there is something to tell.
type told struct {
	*testbed.Fleet

	board *simnode.Node // that asks for the name of another
}

// leakedLabel is the jti of the leaked token.
const leakedLabel = "image-of-october"

func tell(t *testing.T) *told {
	t.Helper()
	if !testproc.InCI() {
		t.Skip("needs a browser: `make browser` runs it")
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &told{Fleet: testbed.New(t, testbed.Options{DefaultPolicy: true, Edit: func(c *daemon.Config) {
		c.API.Listen, c.API.Addresses = "127.0.0.1:0", []string{"127.0.0.1"}
		c.OIDC = login.Settings{Issuer: issuer, ClientID: "muster", ClientSecretFile: secret,
			Roles: map[string]login.GroupRole{"admins": {Role: trust.RoleAdmin}}}
	}})}
	f.Allow("web*.example.net", "pump*.example.net", "edge*.example.net", "press*.example.net", "puppet*.example.net")
	join := func(name string, facts map[string]any) (*simnode.Node, *wire.Enrolled) {
		n := f.Node(name + ".example.net")
		n.Facts = testbed.Facts(t, facts)
		e := f.Enroll(n)
		f.Apply(n, e)
		return n, e
	}
	now := f.Clock.Now().UTC()
	for i := range 3 { // they are off
		name := fmt.Sprintf("pump%d", i+1)
		join(name, map[string]any{})
		f.PutRecord(name+".example.net", func(r *provisioner.Record) {
			r.Current.NotBefore, r.Current.NotAfter = now.Add(-25*24*time.Hour), now.Add(5*24*time.Hour)
			if i == 2 {
				r.Fault = &provisioner.Fault{Cause: "write certificate.pem: no space left on device", At: now}
			}
		})
	}

	for i := range 4 {
		n, e := join(fmt.Sprintf("web%d", i+1), map[string]any{"role": "web"})
		if i == 1 {
			serve(f.Fleet, n, e)
		}
	}
	if err := f.Daemon().Orders().Nodes.Revoke(t.Context(), "web3.example.net",
		trust.Cause{By: "operator:ben", Why: "stolen from the van"}); err != nil {
		t.Fatal(err)
	}
	leaked := f.Token(func(c *jwt.Claims) {
		testbed.Limited(5, "kiosk*.example.net")(c)
		c.JTI = leakedLabel
	})
	for i := range 3 {
		n := simnodeOf(t, fmt.Sprintf("kiosk%d.example.net", i+1), leaked)
		f.Apply(n, f.Enroll(n))
	}
	for i, rack := range []string{"r4", "r5", "r4", "r4"} {
		wait(t, f.Fleet, fmt.Sprintf("db%d.example.net", i+1), map[string]any{"rack": rack, "serialnumber": fmt.Sprintf("PX-%d", i)})
	}
	join("press1", map[string]any{})
	f.board = f.Node("press1.example.net")
	f.Refused(f.board)
	join("puppet1", map[string]any{})
	f.PutRecord("puppet1.example.net", func(r *provisioner.Record) { r.Protocol = provisioner.ProtocolPuppet })
	if err := f.Daemon().Store().PutRun(&nodes.Run{Schema: nodes.RunSchema, Identity: "puppet1.example.net",
		At: f.Clock.Now().UTC(), Status: nodes.RunFailed, Resources: nodes.RunCounts{Total: 12, Failed: 1}}); err != nil {
		t.Fatal(err)
	}
	edges := []*testbed.Agent{f.Agent("edge1.example.net", f.Token(nil)), f.Agent("edge2.example.net", f.Token(nil))}
	f.WaitProvisioned(edges...)
	for _, a := range edges {
		f.PutRecord(a.Identity, func(r *provisioner.Record) { r.Site = "fra1" })
	}
	person := orders.PersonOf(issuer, "mallory")
	if _, err := f.Daemon().Store().Logs().Sessions.Put(t.Context(), person, &orders.Sessions{
		Schema: orders.SessionSchema,
		Person: person,
		Issuer: issuer,
		Sessions: []orders.Session{{ID: "5e55", Name: "oidc:mallory@example.net", Role: trust.RoleAdmin, Agent: "browser",
			Created: f.Clock.Now().UTC(), Expires: f.Clock.Now().Add(8 * time.Hour).UTC(), Source: "192.0.2.7"}},
	}, 0); err != nil {
		t.Fatal(err)
	}
	f.Daemon().Orders().Process.BackupBegun(trust.Cause{By: "operator:ben", Why: "nightly"})
	return f
}

func simnodeOf(t *testing.T, identity, token string) *simnode.Node {
	t.Helper()
	n, err := simnode.New(identity, token)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Ten tasks, each by what the pages show, in at most eight clicks. A newcomer begins at the overview, types no
// address, and knows the fleet only from its operators' words.
func TestTasksOfANewOperator(t *testing.T) {
	t.Parallel()
	f := tell(t)
	press := f.Agent("press7.example.net", f.Token(nil))
	f.WaitProvisioned(press)
	n := &newcomer{tab: signIn(t, f.Fleet, "nina", trust.RoleAdmin)}
	n.look(1440, 900, "light")
	n.eventually("the agents are connected", `document.querySelector("#tiles a[href='/nodes?connected=yes']")?.innerText?.startsWith("3")`)
	press.Stop()
	for _, task := range []struct {
		name string
		do   func(*newcomer, *told)
	}{
		{"1 the stopped machine", findStopped}, {"2 let rack 4 in", letRackIn}, {"3 who revoked web3", whoRevoked},
		{"4 which certificates lapse", whichLapse}, {"5 a leaked token", takeBack}, {"6 why web7 is not in", whyNotIn},
		{"7 a new board", replaceBoard}, {"8 restart a site", restartSite}, {"9 who changed what", whoChanged},
		{"10 the installation", isItWell},
	} {
		t.Run(task.name, func(t *testing.T) {
			n.t, n.clicks, n.pages = t, 0, 1
			n.visit("/")
			began := time.Now()
			task.do(n, f)
			n.shows("task-" + strings.ReplaceAll(task.name, " ", "-") + "-end")
			t.Logf("%s: %d clicks, %d pages, %v", task.name, n.clicks, n.pages, time.Since(began).Round(time.Millisecond))
			if n.clicks > 8 {
				t.Errorf("%d clicks, want at most 8", n.clicks)
			}
			n.sound(task.name)
		})
	}
}

func findStopped(n *newcomer, _ *told) {
	n.shows("task-1-begin")
	n.follow("11 not connected")
	n.shows("task-1-list")
	n.follow("press7.example.net")
	n.sees("not connected", "The agent stopped at", "What to do", "Start the agent", "Revoke")
}

func letRackIn(n *newcomer, _ *told) {
	n.follow("Pending")
	n.shows("task-2-list")
	n.write("Fact", "rack=r4")
	n.sees("3 waiting", "db1", "db3", "db4")
	n.shows("task-2-filtered")
	n.follow("Tick all 3")
	n.follow("Approve ticked")
	n.shows("task-2-confirm")
	n.because("rack 4 is cabled", "Approve")
	n.sees("Approved", "5 waiting, 3 of them approved")
}

func whoRevoked(n *newcomer, _ *told) {
	n.follow("Nodes")
	n.write("Search", "web3")
	n.follow("web3.example.net")
	n.sees("ben", "stolen from the van")
}

func whichLapse(n *newcomer, _ *told) {
	n.sees("Certificates that will lapse", "pump1.example.net", "not connected", "pump3.example.net", "no space left")
	n.follow("1 to 7 days")
	n.sees("3 nodes")
}

func takeBack(n *newcomer, _ *told) {
	n.follow("Tokens")
	n.shows("task-5-list")
	n.follow(leakedLabel)
	n.shows("task-5-token")
	n.sees("kiosk1.example.net", "kiosk3.example.net")
	n.follow("Revoke token")
	n.shows("task-5-confirm")
	n.because("on a public share", "Revoke token")
	n.sees("The token is revoked", "kiosk1.example.net", "kiosk3.example.net")
}

func whyNotIn(n *newcomer, f *told) {
	if _, err := f.Daemon().Orders().Pauses.Begin(n.t.Context(), "", false,
		trust.Cause{By: "operator:ben", Why: "audit until noon"}); err != nil {
		n.t.Fatal(err)
	}
	refused := f.Node("web7.example.net")
	f.Refused(refused)
	n.follow("Nodes")
	n.write("Search", "web7")
	n.shows("task-6-search")
	n.follow("web7.example.net")
	n.sees("paused")
	n.shows("task-6-node")
	n.follow("Resume enrollment")
	n.shows("task-6-overview")
	n.follow("Resume enrollment")
	n.because("the audit is over", "Resume enrollment")
	n.sees("Enrollment goes on")
	f.Apply(refused, f.Enroll(refused))
}

func replaceBoard(n *newcomer, f *told) {
	n.follow("Pending")
	n.shows("task-7-list")
	n.follow("grant it to this key", "press1.example.net")
	n.shows("task-7-confirm")
	n.because("new board", "Let another key have the name")
	n.sees("Another key can take the name")
	f.Apply(f.board, f.Enroll(f.board))
}

func restartSite(n *newcomer, _ *told) {
	n.follow("Nodes")
	n.write("Site", "fra1")
	n.sees("2 nodes", "edge1", "edge2")
	n.shows("task-8-list")
	n.follow("all", "State")
	n.choose("Order", "Restart agent")
	n.follow("Continue")
	n.sees("2 nodes", "edge1.example.net", "edge2.example.net")
	n.shows("task-8-confirm")
	n.because("new version", "Restart agent")
	n.sees("2 done")
}

func whoChanged(n *newcomer, _ *told) {
	n.follow("Activity")
	n.follow("orders of operators")
	n.shows("task-9-activity")
	n.sees("nina", "ben")
	n.follow("Installation")
	n.follow("Sessions")
	n.shows("task-9-sessions")
	n.follow("End session", "mallory")
	n.because("left the company", "End session")
	n.sees("The session is ended", "No operator is signed in by OpenID Connect")
}

func isItWell(n *newcomer, _ *told) {
	n.sees("This needs an operator", "Stuck service certificates", "root CA", "expires in", "Next CRL", "running")
	n.follow("Installation")
	n.shows("task-10-installation")
	n.follow("Authority")
	n.shows("task-10-authority")
	n.sees("Expires", "Next one at the latest")
	n.follow("Installation")
	n.follow("Backups")
	n.sees("ben")
	n.follow("Installation")
	n.follow("Provisioners and brokers")
	n.sees("running")
	n.shows("task-10-components")
}
