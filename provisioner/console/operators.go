package console

import (
	"time"

	"muster/provisioner/trust"
)

func (c installationPages) operators(v *visit) error {
	all, err := c.cfg.Orders.Operators.List(v.r.Context())
	if err != nil {
		return err
	}
	t := &table{
		Columns: []string{"Operator", "State", "Role", "Sites", "Nodes", "Key", "Certificate", "Expires", "Changed",
			"By", "Why"},
		Empty: "There is no operator. `muster operator add NAME --role ROLE` adds one.",
	}
	for _, o := range all {
		state := chip("active", "good")
		switch {
		case o.Removed:
			state = chip("removed", "")
		case !o.Ends.IsZero() && !c.cfg.Now().Before(o.Ends):
			state = chip("certificate expired", "warn")
		}
		t.add(o.Name, state, o.Role, list(o.Sites), list(o.Names), o.KeyType, as("hash", o.Serial), o.Ends, o.At,
			byName(o.By), as("long", o.Why))
	}
	return c.tables(v, "Operators", "Operators with a certificate or a key. Those that sign in at a provider are "+
		"below Sessions. An admin adds and removes them: `muster operator add`, `muster operator remove`.", t)
}

func (c installationPages) signers(v *visit) error {
	all, err := c.cfg.Orders.Signers.List(v.r.Context())
	if err != nil {
		return err
	}
	t := &table{
		Columns: []string{"Signer", "State", "Key", "Sites", "Nodes", "Certificate expires", "Source", "Fingerprint",
			"Changed", "By", "Why"},
		Empty: "There is no signer: no node can enroll. `muster signer add FILE` adds one.",
	}
	for _, s := range all {
		name := as("", s.Name)
		if s.Name == "" { // removed, and in no file
			name = as("hash", s.ID)
		}
		t.add(name, signerState(s, c.cfg.Now()), s.KeyType, as("any", list(s.Sites)), as("any", list(s.Identities)),
			s.NotAfter, s.Source, as("hash", s.ID), s.At, byName(s.By), as("long", s.Why))
	}
	return c.tables(v, "Signers", "Their tokens are trusted, within the limits of sites and nodes. Their keys are not "+
		"here. An admin adds and removes them: `muster signer add`, `muster signer remove`.", t)
}

func signerState(s trust.SignerInfo, now time.Time) cell {
	switch {
	case s.Removed:
		return chip("removed", "")
	case !s.NotAfter.IsZero() && !now.Before(s.NotAfter):
		return chip("expired", "bad")
	case now.Before(s.NotBefore):
		return chip("not yet valid", "warn")
	}
	return chip("trusted", "good")
}
