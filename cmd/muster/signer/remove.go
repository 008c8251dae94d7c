package signer

import (
	"context"
	"fmt"

	"muster/provisioner/trust"

	"github.com/alecthomas/kingpin/v2"

	"muster/cmd/muster/internal/verb"
	"muster/internal/cli"
	"muster/jwt"
	"muster/provisioner/httpapi"
)

const removeHelp = `Makes every token of a signer invalid, on every provisioner within a second, even if
provisioner.yaml names the signer. Nodes that enrolled with its tokens stay in the
fleet.

  muster signer remove build --why 'the key was on a public image'
  muster signer remove build`

func addRemove(parent *kingpin.CmdClause, all cli.Verbs) {
	var signer string
	c := parent.Command("remove", "Stop accepting the tokens of a signer.").HelpLong(removeHelp)
	c.Arg("signer", "Name or id of the signer.").Required().StringVar(&signer)
	verb.Order(c, all, func(ctx context.Context, o *verb.Operator) (removed httpapi.Removed, err error) {
		id, err := idOf(ctx, o, signer)
		if err != nil {
			return removed, err
		}
		return verb.Post[httpapi.Removed](ctx, o, "/v1/signers/"+string(id)+"/remove", httpapi.Reason{Why: o.Why})
	}, func(o *verb.Operator, removed httpapi.Removed) fmt.Stringer {
		if removed.Left == 0 {
			o.Say("signer %s is removed; none is left: no node can enroll until one is added", signer)
		} else {
			o.Say("signer %s is removed; %s left", signer, verb.Counted(removed.Left, "signer is", "signers are"))
		}
		return nil
	})
}

// idOf returns the id of a signer given by name or id.
func idOf(ctx context.Context, o *verb.Operator, signer string) (jwt.SignerID, error) {
	if id := jwt.SignerID(signer); trust.CheckSignerID(id) == nil {
		return id, nil
	}
	signers, err := verb.Listed[trust.SignerInfo]("/v1/signers")(ctx, o)
	if err != nil {
		return "", err
	}
	var named []jwt.SignerID
	for i := range signers {
		if s := &signers[i]; s.Name == signer && !s.Removed {
			named = append(named, s.ID)
		}
	}
	switch len(named) {
	case 0:
		return "", fmt.Errorf("%q is neither the name nor the id of a signer: see `muster signer list`", signer)
	case 1:
		return named[0], nil
	}
	// Possible if two were added at the same time, or one is in provisioner.yaml.
	return "", fmt.Errorf("%d signers have the name %q: give the id of one: %s", len(named), signer, verb.Joined(named))
}
