package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"muster/provisioner/trust"

	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/fleet"
	"muster/provisioner/operate"
)

var (
	onRecord = []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned}
	inFleet  = []provisioner.State{provisioner.StateProvisioned}
)

// nodeActions are all of them, the harmless first.
var nodeActions = []*action{
	{
		Name: "reconfigure", Label: "Reconfigure", states: inFleet, command: wire.VerbReconfigure,
		Touches: []string{"The policy decides anew what configuration the node gets.", "The node fetches it, puts it in force, and confirms its digest. Its certificate stays."},
		Done:    "The node has taken the order to fetch its configuration.",
	},
	{
		Name: "restart", Label: "Restart agent", states: inFleet, command: wire.VerbRestart,
		Touches: []string{"The node's agent ends and is started again. Nothing else on the machine is touched."},
		Done:    "The node has taken the order to restart its agent.",
	},
	{
		Name: "reprovision", Label: "Reprovision", states: inFleet, command: wire.VerbReprovision,
		Touches: []string{"The node goes back to provisioning: the policy decides about it again, and it gets a new certificate and configuration.", "It comes back by its own key. Until then it is not in the fleet."},
		Done:    "The node has taken the order to be provisioned again.",
	},
	{
		Name: "shutdown", Label: "Stop agent", states: inFleet, command: wire.VerbShutdown,
		Touches: []string{"The node's agent ends, and does not start again until somebody on the machine starts it."},
		Done:    "The node has taken the order to stop its agent.",
	},
	{
		Name: "grant", Label: "Let another key have the name", states: onRecord,
		Touches: []string{"For one hour, the next machine that comes with this name and another key gets it, once.", "The key that has the name now loses it then."},
		Done:    "Another key may have the name, once, within the hour.",
	},
	{
		Name: "retire", Label: "Retire", Grave: true, states: []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked},
		Touches: []string{"Its certificates are revoked and its connections dropped.", "The name is free: the next machine that comes with it is treated as new."},
		Done:    "The node is retired: its name is free.",
	},
	{
		Name: "revoke", Label: "Revoke", Grave: true, states: onRecord,
		Touches: []string{"Its connections are dropped within a second, on every broker.", "Its certificates go on the revocation list.", "Neither its keys nor its name get another certificate until the node is retired."},
		Done:    "The node is revoked: it is kept out from now on.",
	},
}

// order reads an order about a node from its address and form.
func (c nodePages) order(v *visit) (*order, error) {
	id, err := wire.ParseIdentity(v.r.PathValue("identity"))
	if err != nil {
		return nil, badRequest(err)
	}
	a := named(nodeActions, v.r.PathValue("action"))
	if a == nil {
		return nil, errNoPage
	}
	seen, err := c.seen(v, id)
	if err != nil {
		return nil, err
	}
	command := cmp.Or(v.r.FormValue("command"), wire.NewID()) // sent twice, it is done once
	o := &order{
		action: a,
		Back:   "/nodes/" + string(id),
		On:     []string{string(id)},
		Since:  seen.OwnedSince,
		Fields: url.Values{"seen": {seenText(seen)}, "command": {command}},
	}
	key := v.r.FormValue("key")
	if key != "" {
		o.On[0] += ", only the key " + key
		o.Fields.Set("key", key)
	}
	// A renewal since it was seen matters only where the name is given away.
	owner := provisioner.Seen{OwnedSince: seen.OwnedSince}
	o.do = func(ctx context.Context, cause trust.Cause) (err error) {
		nodes := c.cfg.Orders.Nodes
		switch {
		case a.command != "":
			_, err = nodes.Command(ctx, id, operate.CommandOrder{ID: command, Verb: a.command, Seen: owner}, cause)
		case a.Name == "grant":
			_, err = nodes.Grant(ctx, id, operate.GrantOrder{ID: command, KeyHash: key, Seen: seen}, cause)
		case a.Name == "retire":
			err = nodes.Retire(ctx, id, cause, seen)
		default:
			err = nodes.Revoke(ctx, id, cause, owner)
		}
		return err
	}
	return o, nil
}

// seen returns what the operator saw of a node: what the button or the form says, or else what is there now.
func (c nodePages) seen(v *visit, id wire.Identity) (provisioner.Seen, error) {
	if text := v.r.FormValue("seen"); text != "" || v.r.Method == http.MethodPost {
		return parseSeen(text)
	}
	report, err := c.cfg.Nodes.Report(v.r.Context(), id, c.cfg.Now().UTC())
	if err != nil {
		return provisioner.Seen{}, err
	}
	return seenOf(report), nil
}

// seenOf is what a page about a node shows: what is ordered on it is for that alone.
func seenOf(r *fleet.Report) provisioner.Seen {
	return provisioner.Seen{Revision: r.Revision, OwnedSince: r.Record.OwnedSince}
}

// seenText writes what was seen for links and forms, REVISION-SECONDS.
func seenText(s provisioner.Seen) string {
	return fmt.Sprintf("%d-%d", s.Revision, s.OwnedSince.Unix())
}

// parseSeen is the inverse of seenText.
func parseSeen(text string) (provisioner.Seen, error) {
	revision, owned, _ := strings.Cut(text, "-")
	at, err := strconv.ParseUint(revision, 10, 64)
	seconds, bad := strconv.ParseInt(owned, 10, 64)
	if err != nil || bad != nil || at == 0 {
		return provisioner.Seen{}, badRequest(errors.New("the form does not say which machine is meant: open the machine's page again"))
	}
	return provisioner.Seen{Revision: trust.Revision(at), OwnedSince: time.Unix(seconds, 0).UTC()}, nil
}
