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

// nodeActions begin with the harmless ones.
var nodeActions = []*action{
	{
		Name:    "reconfigure",
		Label:   "Reconfigure",
		states:  inFleet,
		command: wire.VerbReconfigure,
		Touches: []string{
			"The policy decides the node's configuration anew.",
			"The node fetches it, applies it, and confirms its digest. Its certificate stays.",
		},
		Done: "The node has acknowledged the command to fetch its configuration.",
	},
	{
		Name:    "restart",
		Label:   "Restart agent",
		states:  inFleet,
		command: wire.VerbRestart,
		Touches: []string{"The node's agent is restarted. Nothing else on the machine is affected."},
		Done:    "The node has acknowledged the command to restart its agent.",
	},
	{
		Name:    "reprovision",
		Label:   "Reprovision",
		states:  inFleet,
		command: wire.VerbReprovision,
		Touches: []string{
			"The node goes back to provisioning: the policy decides again, and the node gets a new certificate and " +
				"configuration.",
			"It enrolls with its own key. Until then it is not in the fleet.",
		},
		Done: "The node has acknowledged the command to enroll again.",
	},
	{
		Name:    "shutdown",
		Label:   "Stop agent",
		states:  inFleet,
		command: wire.VerbShutdown,
		Touches: []string{"The node's agent stops, until it is started on the machine."},
		Done:    "The node has acknowledged the command to stop its agent.",
	},
	{
		Name:   "grant",
		Label:  "Let another key have the name",
		Danger: true,
		states: onRecord,
		Touches: []string{
			"For one hour, the key that is named here, or else the next that asks, can take the name, once.",
			"The present key then loses the name.",
		},
		Done: "Another key can take the name, once, within the hour.",
	},
	{
		Name:   "retire",
		Label:  "Retire",
		Grave:  true,
		states: []provisioner.State{provisioner.StateEnrolled, provisioner.StateProvisioned, provisioner.StateRevoked},
		Touches: []string{
			"The node's certificates are revoked and its connections dropped.",
			"The name is free: the next node with it is treated as new.",
		},
		Done: "The node is retired: its name is free.",
	},
	{
		Name:   "revoke",
		Label:  "Revoke",
		Grave:  true,
		states: onRecord,
		Touches: []string{
			"The node's connections are dropped within a second, on every broker.",
			"Its certificates go on the revocation list.",
			"Neither its keys nor its name get another certificate until the node is retired.",
		},
		Done: "The node is revoked: it is barred from now on.",
	},
}

func (c nodePages) order(v *visit, o *order) error {
	id := v.node
	seen, err := c.seen(v, id)
	if err != nil {
		return err
	}
	command := cmp.Or(v.r.FormValue("command"), wire.NewID()) // a repeated form is one command
	o.Back, o.On, o.Since = "/nodes/"+string(id), []string{string(id)}, seen.OwnedSince
	o.Fields = url.Values{"seen": {seenText(seen)}, "command": {command}}
	key := wire.FoldHash(v.r.FormValue("key"))
	if o.Name == "grant" {
		if err := c.nameKey(v, o, id, key); err != nil {
			return err
		}
	}
	grant := operate.GrantOrder{ID: command, KeyHash: key, Seen: seen}
	o.do = func(ctx context.Context, cause trust.Cause) error { return c.carryOut(ctx, o.action, id, grant, cause) }
	return nil
}

// carryOut takes id and precondition of each action from grant.
func (c *Console) carryOut(
	ctx context.Context, a *action, id wire.Identity, grant operate.GrantOrder, cause trust.Cause,
) (err error) {
	nodes := c.cfg.Orders.Nodes
	// Only orders that free the name or give it to another key fail if the node has renewed since.
	owner := provisioner.Precondition{OwnedSince: grant.Seen.OwnedSince}
	switch {
	case a.command != "":
		_, err = nodes.Command(ctx, id, operate.CommandOrder{ID: grant.ID, Verb: a.command, Seen: owner}, cause)
	case a.Name == "grant":
		_, err = nodes.Grant(ctx, id, grant, cause)
	case a.Name == "retire":
		err = nodes.Retire(ctx, id, cause, grant.Seen)
	default:
		err = nodes.Revoke(ctx, id, cause, owner)
	}
	return err
}

// nameKey has the form of a grant name its key, or offers the waiting keys: a grant without one would be refused.
func (c nodePages) nameKey(v *visit, o *order, id wire.Identity, key string) error {
	waiting, err := c.keysOf(v.r.Context(), v, id)
	if err != nil {
		return err
	}
	for _, w := range waiting {
		if key == "" {
			link := url.Values{"seen": o.Fields["seen"], "key": {w.KeyHash}}
			o.Keys = append(o.Keys, keyChoice{w, o.Back + "/do/grant?" + link.Encode()})
		} else if w.KeyHash == key {
			o.Keys = append(o.Keys, keyChoice{Key: w})
		}
	}
	if key == "" {
		return nil
	}
	o.On[0] += ", only the key " + key
	o.Fields.Set("key", key)
	return nil
}

// seen returns the node's state as the form or link has it, or else the current one.
func (c nodePages) seen(v *visit, id wire.Identity) (provisioner.Precondition, error) {
	if text := v.r.FormValue("seen"); text != "" || v.r.Method == http.MethodPost {
		return parseSeen(text)
	}
	report, err := c.cfg.Nodes.Report(v.r.Context(), id, c.cfg.Now().UTC())
	if err != nil {
		return provisioner.Precondition{}, err
	}
	return seenOf(report), nil
}

// seenOf returns the state that a page shows. Orders from that page apply only to this state.
func seenOf(r *fleet.Report) provisioner.Precondition {
	return provisioner.Precondition{Revision: r.Revision, OwnedSince: r.Record.OwnedSince}
}

// seenText writes REVISION-SECONDS for links and forms.
func seenText(s provisioner.Precondition) string {
	return fmt.Sprintf("%d-%d", s.Revision, s.OwnedSince.Unix())
}

// parseSeen is the inverse of seenText.
func parseSeen(text string) (provisioner.Precondition, error) {
	revision, owned, _ := strings.Cut(text, "-")
	at, err := strconv.ParseUint(revision, 10, 64)
	seconds, bad := strconv.ParseInt(owned, 10, 64)
	if err != nil || bad != nil || at == 0 {
		return provisioner.Precondition{}, badRequest(
			errors.New("the form does not say which node it is for: reload the node's page"))
	}
	return provisioner.Precondition{Revision: trust.Revision(at), OwnedSince: time.Unix(seconds, 0).UTC()}, nil
}
